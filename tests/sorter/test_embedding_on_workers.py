"""A pile embedded by workers is the pile embedded here: in processes, on Ray, after losses."""

import shutil
from functools import partial
from pathlib import Path

import pytest

from semishot.errors import InputError
from semishot.sorter import embedding_on_workers
from semishot.sorter.classify import classify
from semishot.sorter.embedding_on_workers import ImageTasks
from semishot.sorter.encoders.networks import GraphNetwork
from semishot.sorter.requests import ClassifyRequest
from semishot.workers import engine, places
from semishot.workers.engine import Processes, Task
from semishot.workers.ray_cluster import RayCluster
from support import engine_works
from support.own_images import folders
from support.this_process import ThisProcess


@pytest.fixture
def pile(tmp_path, monkeypatch) -> tuple[Path, Path]:
    """Drawings, three files that are none, and two copies; tasks of eight of them."""
    labeled, pile = folders(tmp_path)
    (pile / "broken.png").write_bytes(b"no image")
    (pile / "empty.png").write_bytes(b"")
    (pile / "link.png").symlink_to("nowhere")
    for number in range(2):
        shutil.copy(pile / "dots-0.png", pile / "more" / f"copy-{number}.png")
    monkeypatch.setattr(embedding_on_workers, "MOST_IMAGES", 8)
    monkeypatch.chdir(tmp_path)
    return labeled, pile


def ask(pile, out: str, **more) -> None:
    labeled, unlabeled = pile
    classify(ClassifyRequest(labeled, Path(out), unlabeled, encoder="omniglot", **more))


def sort(pile, out: str, **more) -> dict[str, bytes]:
    """What `classify` leaves, but for how its features are cut into files and how long it took."""
    ask(pile, out, device="cpu", **more)
    names = ("predictions.csv", "skipped.csv", "report.html", "model/classifier.safetensors")
    assert not list(Path(out).glob(".*"))
    return {name: (Path(out) / name).read_bytes() for name in names}


def at(monkeypatch, open_place) -> dict[str, str]:
    monkeypatch.setattr(places, "place_of", lambda *words, **more: open_place)
    return {"engine": "local"}


def two_processes(shared, tasks):
    return Processes(["cpu", "cpu"], 1, shared)


def test_two_processes_leave_what_one_leaves(pile, monkeypatch):
    here = sort(pile, "here")
    assert sort(pile, "there", **at(monkeypatch, two_processes)) == here
    again = at(monkeypatch, lambda *_: ThisProcess())
    monkeypatch.setattr(GraphNetwork, "__call__", lambda *_: pytest.fail("encoded again"))
    assert sort(pile, "there", **again) == here  # all of it from the cache


def test_a_lost_worker_costs_what_it_had_not_reported(pile, monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("KILLED_ONCE", str(tmp_path / "killed"))
    monkeypatch.setattr(embedding_on_workers, "work_on_images", engine_works.fragile_images)
    sent, unknown = [], ImageTasks.unknown

    def watched(self, first, last):
        sent.append((first, len(wanted := unknown(self, first, last))))
        return wanted

    monkeypatch.setattr(ImageTasks, "unknown", watched)
    found = sort(pile, "there", **at(monkeypatch, lambda *_: Processes(["cpu"], 1)))
    assert "images 1 to 8: lost its worker (a process on cpu ended with -9)" in (
        capsys.readouterr().err
    )
    first, second = (count for first, count in sent if first == 0)
    assert first == 8
    assert second < 8  # features that were reported are not asked for again
    assert found == sort(pile, "here")


@pytest.mark.slow
def test_a_pile_on_ray_where_a_machine_is_lost(pile, cluster, monkeypatch):
    here = sort(pile, "here")
    machines = [cluster.add_node(num_cpus=1)]
    receive = ImageTasks.receive

    def lose_a_machine(self, found):
        receive(self, found)
        if len(machines) == 1:
            cluster.remove_node(machines[0], allow_graceful=False)
            machines.append(cluster.add_node(num_cpus=1))

    monkeypatch.setattr(ImageTasks, "receive", lose_a_machine)
    assert sort(pile, "there", engine="ray", address=cluster.address) == here
    cluster.remove_node(machines[1])


def test_tasks_are_read_when_there_is_room_and_workers_on_a_gpu_stay(cluster, monkeypatch):
    """What many tasks are given would not fit into a cluster's memory. Of the GPU Ray is only told."""
    monkeypatch.setattr("semishot.workers.ray_cluster.AHEAD", 1)
    machine = cluster.add_node(num_cpus=1, num_gpus=1)
    held, most, processes = set(), [], set()

    def arguments(name):
        held.add(name)
        most.append(len(held))
        return ()

    names = ["a", "b", "c", "d", "e"]
    tasks = [Task(n, 1, engine_works.process_id, partial(arguments, n), list) for n in names]
    for news in engine.run(tasks, RayCluster(cluster.address, "cuda", keep_workers=True)):
        held -= {task.name for task, _ in news}
        processes |= {process for _, process in news}
    assert len(most) == 5
    assert max(most) == 2
    assert len(processes) == 1
    cluster.remove_node(machine)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"address": "10.0.0.1:6379"}, "address of a Ray cluster: it needs --engine ray"),
        ({"engine": "ray", "device": "cuda:1"}, "with --engine ray, --device is auto, cpu or cuda"),
    ],
)
def test_wrong_words_leave_nothing(pile, words, message):
    with pytest.raises(InputError, match=message):
        ask(pile, "out", **words)
    assert not Path("out").exists()
