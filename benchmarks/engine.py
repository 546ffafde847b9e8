"""Fleets on a Ray cluster of 1, 2 and 4 machines with a core each, and what a task costs that does nothing.

The machines are Ray's own for tests: processes on this one, which share its cores. They share no files.
"""

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from measurement import command, result
from semishot.data.pool import ImageClass, ImagePool, Split, save_pool
from semishot.paper.on_workers import run_jobs_on_workers
from semishot.paper.plan import Job
from semishot.paper.presets import OMNIGLOT_TRAIN
from semishot.paper.reproduce import Site, run_jobs
from semishot.training.config import FleetConfig, Member, Recipe
from semishot.workers import engine, ray_cluster

CPU = torch.device("cpu")
FLEETS, RUNS, FILTERS, UPDATES = 8, 2, 16, 150
WAITS, TASKS = 16, 300
IMAGES = 20


def random_pool(folder: Path) -> ImagePool:
    """30 classes of noise in each split."""
    splits: list[Split] = [split for split in ("train", "val", "test") for _ in range(30)]
    classes = [
        ImageClass(f"{split}{place}", "noise", split, place * IMAGES, IMAGES)
        for place, split in enumerate(splits)
    ]
    shape = len(classes) * IMAGES, 1, 28, 28
    images = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    return save_pool(folder, "noise", images, classes, {})


def fleets(pool: ImagePool, count: int, updates: int) -> list[Job]:
    recipe = Recipe(updates=updates, filters=FILTERS)
    members = [
        tuple(Member("masked_soft_kmeans", RUNS * fleet + run) for run in range(RUNS))
        for fleet in range(count)
    ]
    return [
        Job(FleetConfig("noise", pool.fingerprint, "", recipe, OMNIGLOT_TRAIN, m), None, (), m)
        for m in members
    ]


def wait(shared: None, device: str, seconds: float) -> Iterator[None]:
    """What this machine sees of a task whose work is done by a GPU."""
    time.sleep(seconds)
    yield None


def waiting(place: engine.Place, count: int, seconds: float) -> float:
    """Seconds for so many tasks that wait."""
    tasks = [engine.Task("wait", 1.0, wait, lambda: (seconds,), list) for _ in range(count)]
    begun = time.perf_counter()
    for _ in engine.run(tasks, place):
        pass
    return time.perf_counter() - begun


def on_machines(
    count: int, pool: ImagePool, jobs: list[Job], folder: Path, quick: bool
) -> dict[str, float]:
    """The row of a fresh cluster of so many machines, whose workers have done something before."""
    ray = ray_cluster.import_ray()
    from ray.cluster_utils import Cluster

    cluster = Cluster(True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    for _ in range(count):
        cluster.add_node(num_cpus=1)
    ray_cluster.connect(ray, cluster.address)  # it outlasts the places: workers stay
    place = partial(ray_cluster.RayCluster, cluster.address, "cpu")
    run = partial(run_jobs_on_workers, lambda images, _: place(images))
    try:
        run(fleets(pool, count, updates=1), Site(pool, folder / f"warm-{count}", CPU))
        begun = time.perf_counter()
        run(jobs, Site(pool, folder / f"runs-{count}", CPU))
        taken = time.perf_counter() - begun
        waits = waiting(place(), 2 if quick else WAITS, 1.0)
        return {"fleets_seconds": taken, "waits_seconds": waits, "task_ms": overhead(place, quick)}
    finally:
        ray.shutdown()
        cluster.shutdown()


def overhead(place: Callable[[], engine.Place], quick: bool) -> float:
    """Milliseconds of a task that does nothing, without those of the place itself."""
    tasks = 5 if quick else TASKS
    return 1e3 * (waiting(place(), tasks + 1, 0.0) - waiting(place(), 1, 0.0)) / tasks


def measure(device: torch.device, quick: bool) -> dict[str, Any]:
    here = str(Path(__file__).parent)  # where workers find this file
    os.environ["PYTHONPATH"] = os.pathsep.join([here, os.environ.get("PYTHONPATH", "")])
    os.environ["RAY_AUTH_MODE"] = "disabled"  # clusters of this process alone, for a minute
    torch.set_num_threads(1)  # as each machine has one core
    updates, rows, busy = 2 if quick else UPDATES, [], os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        pool = random_pool(folder / "noise")
        run_jobs(fleets(pool, 1, updates=1), Site(pool, folder / "warm", CPU))
        jobs = fleets(pool, 2 if quick else FLEETS, updates)
        begun = time.perf_counter()
        run_jobs(jobs, Site(pool, folder / "runs", CPU))
        alone = time.perf_counter() - begun
        rows.append({"where": "this process, one thread", "fleets_seconds": alone})
        if not quick:
            local = overhead(lambda: engine.Processes(["cpu"], 1), quick)
            rows.append({"where": "--engine local, one process", "task_ms": local})
        for count in [1] if quick else [1, 2, 4]:
            row = on_machines(count, pool, jobs, folder, quick)
            machines = "machine" if count == 1 else "machines"
            rows.append({"where": f"--engine ray, {count} {machines}", **row})
    settings = {
        "fleets": len(jobs),
        "runs": RUNS,
        "filters": FILTERS,
        "updates": updates,
        "waits": 2 if quick else WAITS,
        "load_average_before": busy,
    }
    return result("engine", device, quick, settings, rows)


if __name__ == "__main__":
    command("engine", measure)
