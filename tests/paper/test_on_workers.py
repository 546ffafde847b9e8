"""A table on several workers is the table of one process: on this machine, on Ray, after losses."""

import itertools
import os
import shutil
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch

from semishot.errors import InputError
from semishot.paper import on_workers, presets, reproduce
from semishot.paper.reproduce import Site, measured_fleets, open_site
from semishot.paper.requests import TableRequest
from semishot.training import loop
from semishot.training.config import Recipe
from semishot.training.fleet_log import Row
from semishot.training.requests import Where
from semishot.workers import Workers, places, ray_cluster
from semishot.workers.engine import Processes
from support import engine_works
from support.commands import refusal
from support.own_methods import own_module
from support.this_process import ThisProcess

CPU = torch.device("cpu")
TINY = Recipe(updates=110, filters=2, halvings=(50,), init_std=0.1)
"""Checkpoints are taken between lines of the log: there is one, at 100."""
ABOUT = {"seconds", "date", "device", "versions", "training"}
"""Fields of a record that say how it was made."""


@pytest.fixture(autouse=True)
def tiny_preset(monkeypatch):
    monkeypatch.setitem(presets.PRESETS, "tiny", presets.Preset("a test's", TINY))


def table1(pool, runs, place=None, **more) -> list[dict]:
    site = Site(pool, runs, CPU, open_place=place)
    request = TableRequest(preset="tiny", splits=1, **more)
    return measured_fleets(reproduce.requested_fleets("table1", request, site), site)


@pytest.fixture(scope="module")
def here(tiny_pool, tmp_path_factory) -> tuple[Path, list[dict]]:
    """Table 1 in this process: its runs folder and its records."""
    runs = tmp_path_factory.mktemp("here")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(presets.PRESETS, "tiny", presets.Preset("a test's", TINY))
        return runs, table1(tiny_pool, runs)


def processes(images, tasks):
    return Processes(["cpu", "cpu"], 1, images)


def numbers(records: list[dict]) -> list[dict]:
    return [{k: v for k, v in record.items() if k not in ABOUT} for record in records]


def assert_same(runs: Path, records: list[dict], here: tuple[Path, list[dict]]) -> None:
    """The same accuracies in every episode, the same log, the same bits of every model."""
    assert numbers(records) == numbers(here[1])
    files = {path.relative_to(here[0]) for path in here[0].rglob("*") if path.is_file()}
    assert {path.relative_to(runs) for path in runs.rglob("*") if path.is_file()} == files
    for path in files:
        if path.name not in ("result.json", "training.json"):  # they hold times
            assert (runs / path).read_bytes() == (here[0] / path).read_bytes(), path


def test_the_table_of_two_processes_is_the_table_of_one(here, tiny_pool, tmp_path):
    assert_same(tmp_path, table1(tiny_pool, tmp_path, processes), here)


def test_a_worker_imports_the_methods_that_the_user_has_named(tiny_pool, tmp_path, monkeypatch):
    short = presets.Preset("a test's", replace(TINY, updates=2, halvings=()))
    monkeypatch.setitem(presets.PRESETS, "tiny", short)
    with own_module(tmp_path) as module:
        name = f"{module}:Halved"
        records = table1(tiny_pool, tmp_path / "runs", processes, models=(name,))
    assert {record["model"] for record in records} == {name}


def test_what_is_finished_opens_no_place_and_what_is_trained_is_only_measured(
    here, tiny_pool, tmp_path, monkeypatch
):
    runs = shutil.copytree(here[0], tmp_path / "runs")
    assert table1(tiny_pool, runs, lambda *_: pytest.fail("it opened a place")) == here[1]
    (folder, *_) = (path.parent for path in runs.rglob("result.json"))
    before = (folder / "model.safetensors").stat().st_mtime_ns
    (folder / "result.json").unlink()
    opened = []
    monkeypatch.setattr(loop, "chunk_runner", lambda *_: pytest.fail("it trained"))

    def open_here(images, tasks):
        opened.append(tasks)
        return ThisProcess(images)

    assert numbers(table1(tiny_pool, runs, open_here)) == numbers(here[1])
    assert opened == [1]
    assert (folder / "model.safetensors").stat().st_mtime_ns >= before


def on_ray(cluster) -> partial:
    return partial(places.ray_cluster, cluster.address, "auto")


@pytest.mark.slow
def test_a_machine_lost_and_machines_that_join_late_change_nothing_but_the_time(
    here, cluster, tiny_pool, tmp_path, monkeypatch, capsys
):
    """There is no machine at first; the first that comes is killed at its first checkpoint."""
    monkeypatch.setattr(on_workers, "CHECKPOINT_SECONDS", 0.0)
    seen, receive, polls = [], on_workers.FleetTasks.receive, itertools.count()
    machines = []

    def kill_at_the_first_checkpoint(self, task, value):
        receive(self, task, value)
        seen.append(value)
        if (
            sum("state.pt" in value for value in seen if isinstance(value, dict))
            == 1
            == len(machines)
        ):
            cluster.remove_node(machines[0], allow_graceful=False)
            machines.append(cluster.add_node(num_cpus=1))

    poll = ray_cluster.RayCluster.poll

    def join_late(self, seconds):
        if next(polls) == 2:
            machines.append(cluster.add_node(num_cpus=1))
        return poll(self, seconds)

    monkeypatch.setattr(on_workers.FleetTasks, "receive", kill_at_the_first_checkpoint)
    monkeypatch.setattr(ray_cluster.RayCluster, "poll", join_late)
    records = table1(tiny_pool, tmp_path, on_ray(cluster))
    assert_same(tmp_path, records, here)
    assert "lost its worker (NodeDiedError" in capsys.readouterr().err
    resumed = [value for value in seen if isinstance(value, Row) and value.skipped]
    assert {value.skipped for value in resumed} == {100}
    cluster.remove_node(machines[1])


@pytest.mark.slow
def test_a_fleet_that_finds_no_memory_is_reported_split_and_found_again(
    cluster, tiny_pool, tmp_path, monkeypatch, capsys
):
    """Its halves are the fleets that `--fleet-size` makes, bit by bit, and the next call takes them."""
    machine = cluster.add_node(num_cpus=1)
    monkeypatch.setattr(on_workers, "work_on_fleet", engine_works.tight_fleet)
    which = {"models": ("soft_kmeans", "masked_soft_kmeans")}
    found = table1(tiny_pool, tmp_path / "split", on_ray(cluster), **which)
    told = capsys.readouterr().err
    for column in (0, 5):
        line = f"2 methods, 2 runs, 5-way 1-shot M5 H{column}: out of memory ("
        assert told.count(line) == 1
    assert told.count("trying again in 2 parts") == 2
    small = tmp_path / "small", table1(tiny_pool, tmp_path / "small", fleet_size=1, **which)
    assert sorted(map(str, numbers(found))) == sorted(map(str, numbers(small[1])))
    for path in small[0].rglob("model.safetensors"):
        there = tmp_path / "split" / path.relative_to(small[0])
        assert there.read_bytes() == path.read_bytes()
    again = table1(tiny_pool, tmp_path / "split", lambda *_: pytest.fail("it began"), **which)
    assert sorted(map(str, again)) == sorted(map(str, found))
    cluster.remove_node(machine)


def test_without_the_extra_the_command_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(InputError, match=r"--engine ray needs Ray: pip install 'semishot\[ray\]'"):
        ray_cluster.import_ray()
    assert os.environ["RAY_USAGE_STATS_ENABLED"] == "0"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--address", "10.0.0.1:6379"], "address of a Ray cluster: it needs --engine ray"),
        (["--engine", "ray", "--device", "cuda:1"], "--device is auto, cpu or cuda"),
        (["--fleet-size", "0"], "--fleet-size must be at least 1, not 0"),
    ],
)
def test_wrong_words_end_in_one_line(words, message, tiny_root, capsys):
    where = ["--dataset", "glyphs", "--data-root", str(tiny_root)]
    command = ["reproduce", "table1", "--preset", "tiny", "--splits", "1"]
    assert message in refusal(capsys, *command, *where, *words)


def test_several_gpus_are_all_used_unless_one_is_named(tiny_pool, monkeypatch):
    opened = []

    def site(engine: str | None, device: str) -> Site:
        return open_site(tiny_pool, Where(device=device), Workers(engine), tensorboard=False)

    assert (site(None, "cpu").device, site(None, "cpu").open_place) == (CPU, None)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    for module in (places, reproduce):
        monkeypatch.setattr(
            module, "pick_device", lambda name: torch.device(name.replace("auto", "cuda"))
        )
    monkeypatch.setattr(places, "Processes", lambda *words: opened.append(words))
    for engine_name, device in ((None, "auto"), ("local", "cuda"), ("local", "cuda:2")):
        found = site(engine_name, device)
        assert found.device == CPU
        found.open_place("images", 9)
    assert [devices for devices, *_ in opened] == [["cuda:0", "cuda:1", "cuda:2"]] * 2 + [
        ["cuda:2"]
    ]
    assert site(None, "cuda:1").device == torch.device("cuda:1")
