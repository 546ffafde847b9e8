"""A place for tasks that works in this process."""

from typing import Any

from semishot.workers import engine


class ThisProcess:
    def __init__(self, shared: Any = None) -> None:
        self.shared, self.news = shared, []

    def submit(self, task: engine.Task) -> None:
        told = engine.run_in_worker(task.work, self.shared, "cpu", task.arguments())
        self.news += [(task, each) for each in [*told, engine.Done()]]

    def poll(self, seconds: float) -> list[tuple[engine.Task, Any]]:
        news, self.news = self.news, []
        return news

    def close(self) -> None:
        pass
