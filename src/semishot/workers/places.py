"""Where tasks run: processes of this machine, or a Ray cluster."""

from collections.abc import Callable
from functools import partial
from typing import Literal

import torch

from semishot.errors import InputError
from semishot.system.devices import pick_device
from semishot.workers.engine import Array, Place, Processes
from semishot.workers.ray_cluster import RayCluster

OpenPlace = Callable[[Array | None, int], Place]
"""Called with the array that workers share, and the number of tasks."""


def place_of(
    engine: Literal["local", "ray"] | None, address: str | None, device: str
) -> OpenPlace | None:
    """A function that opens the place where tasks run; None means this process itself."""
    if address is not None and engine != "ray":
        raise InputError("--address is the address of a Ray cluster: it needs --engine ray")
    if engine == "ray":
        if device not in ("auto", "cpu", "cuda"):
            raise InputError(f"with --engine ray, --device is auto, cpu or cuda, not {device}")
        return partial(ray_cluster, address, device)
    return None if engine is None else partial(this_machine, pick_device(device))


def ray_cluster(address: str | None, device: str, images: Array | None, tasks: int) -> Place:
    return RayCluster(address, device, images)


def this_machine(device: torch.device, images: Array | None, tasks: int) -> Place:
    """A process for each GPU, or on the CPU one for each core, at most one per task."""
    if device.type == "cuda":
        every = range(torch.cuda.device_count()) if device.index is None else [device.index]
        return Processes([f"cuda:{index}" for index in every][:tasks], 1, images)
    cores = torch.get_num_threads()
    count = min(cores, tasks)
    return Processes(["cpu"] * count, cores // count, images)
