"""A worker process ends with the process that started it, whatever it is doing."""

import multiprocessing
import os
import threading


def end_with_parent() -> None:
    """In a worker: end when the parent has ended, killed perhaps, and nobody waits for the work."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def wait() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()
