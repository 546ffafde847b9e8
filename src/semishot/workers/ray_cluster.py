"""A Ray cluster as a place for tasks (extra `ray`): each is a Ray task that streams its messages."""

import logging
import os
import signal
import socket
import time
from collections import deque
from types import ModuleType
from typing import Any

import numpy as np

from semishot.errors import InputError, Terminated, needing_extra
from semishot.workers.engine import (
    Array,
    Done,
    Failed,
    Lost,
    Message,
    NoMemory,
    Task,
    Yielded,
    run_in_worker,
    warn,
)

CONNECT_SECONDS = 10.0
TIDY_SECONDS = 3.0
"""Seconds a worker may take to end by itself: less than a command has after a signal."""
AHEAD = 16
"""Tasks submitted beyond those that can run: their arguments are held in the cluster's memory."""


def import_ray() -> ModuleType:
    """Ray, with its usage reports turned off."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    with needing_extra("--engine ray"):
        import ray
        import ray.exceptions
    module: ModuleType = ray
    return module


def connect(ray: ModuleType, address: str | None) -> None:
    """Join the cluster at `address` or $RAY_ADDRESS; without either, start one on this machine alone."""
    address = address or os.environ.get("RAY_ADDRESS")
    settings: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if address is None:
        settings |= {"address": "local", "include_dashboard": False}
    else:
        check_address(address)
        settings["address"] = address
    on_terminate = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(**settings)
    except SystemExit as ended:  # raised by Ray on SIGTERM
        raise Terminated from ended
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise InputError(
            f"cannot join the Ray cluster at {address} ({str(error).splitlines()[0]}); it may ask for a "
            "token: set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN as on its machines"
        ) from error
    finally:
        signal.signal(signal.SIGTERM, on_terminate)  # Ray's own would end this process in silence


def check_address(address: str) -> None:
    """Fail within seconds; Ray would wait minutes for a machine that does not answer."""
    host, _, port = address.rpartition(":")
    if address == "auto":
        return
    if "//" in address or not host or not port.isdigit():
        raise InputError(
            f"--address {address} is not HOST:PORT, as `ray start --head` prints it, nor auto; run this "
            "on a machine that can reach the cluster's"
        )
    try:
        socket.create_connection((host, int(port)), CONNECT_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise InputError(
            f"no Ray cluster answers at {address} ({error}); `ray status` on one of its machines shows "
            "whether it is up"
        ) from error


class RayCluster:
    """Ray does not retry tasks: a second attempt resumes from the last checkpoint, not from the start."""

    def __init__(
        self,
        address: str | None,
        device: str,
        shared: Array | None = None,
    ) -> None:
        self.ray = import_ray()
        self.joined = not self.ray.is_initialized()
        if self.joined:
            connect(self.ray, address)
        gpus = self.ray.cluster_resources().get("GPU", 0)
        self.device = device if device != "auto" else "cuda" if gpus else "cpu"
        if self.device == "cuda" and not gpus:
            warn("no machine of the cluster has a GPU: waiting until one joins")
        self.shared = None if shared is None else self.ray.put(np.asarray(shared))
        self.start = self.ray.remote(
            num_cpus=1,
            num_gpus=int(self.device == "cuda"),
            max_retries=0,
            max_calls=int(self.device == "cuda"),
            num_returns="streaming",
        )(run_in_worker)
        self.waiting: deque[Task] = deque()
        self.streams: dict[Any, Task] = {}

    def submit(self, task: Task) -> None:
        self.waiting.append(task)

    def poll(self, seconds: float) -> list[tuple[Task, Message]]:
        while self.waiting and len(self.streams) < self._slots() + AHEAD:
            task = self.waiting.popleft()
            stream = self.start.remote(task.work, self.shared, self.device, task.arguments())
            self.streams[stream] = task
        streams = list(self.streams)
        if not self.ray.wait(streams, num_returns=1, timeout=seconds, fetch_local=False)[0]:
            return []
        ready, _ = self.ray.wait(streams, num_returns=len(streams), timeout=0, fetch_local=False)
        news = []
        for stream in ready:
            message = self._receive(stream)
            news.append((self.streams[stream], message))
            if not isinstance(message, Yielded):
                del self.streams[stream]
        return news

    def _slots(self) -> int:
        return int(self.ray.cluster_resources().get("GPU" if self.device == "cuda" else "CPU", 0))

    def _receive(self, stream: Any) -> Message:
        errors = self.ray.exceptions
        try:
            message: Message = self.ray.get(next(stream))
            return message
        except StopIteration:
            return Done()
        except errors.OutOfMemoryError as error:  # Ray kills the largest when memory runs out
            return NoMemory(str(error).splitlines()[0])
        except errors.RayTaskError as error:
            return Failed(error.cause if isinstance(error.cause, InputError) else error)
        except errors.RayError as error:
            return Lost(f"{type(error).__name__}: {str(error).splitlines()[0]}")

    def close(self) -> None:
        streams = list(self.streams)
        for stream in streams:
            self.ray.cancel(stream, force=False)  # interrupts them: workers remove their folders
        until = time.monotonic() + TIDY_SECONDS
        while streams and (left := until - time.monotonic()) > 0:
            for stream in self.ray.wait(streams, timeout=left, fetch_local=False)[0]:
                try:
                    next(stream)
                except (StopIteration, self.ray.exceptions.RayError):
                    streams.remove(stream)
        for stream in streams:
            self.ray.cancel(stream, force=True)
        self.streams.clear()
        if self.joined:
            self.ray.shutdown()
