"""Devices and their names, and the flags that say where a command works."""

import platform
import re
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from semishot.errors import InputError

if TYPE_CHECKING:
    import torch

Address = Annotated[
    str | None,
    tyro.conf.arg(
        help="The Ray cluster's address, such as 10.0.0.1:6379; else $RAY_ADDRESS, else a new one here."
    ),
]
DataRoot = Annotated[
    Path | None,
    tyro.conf.arg(help="Where prepared data are; else $SEMISHOT_DATA, else the cache folder."),
]
Device = Annotated[str, tyro.conf.arg(help="auto, cpu, cuda or cuda:N.")]
NO_DEVICE = "no device {!r}: it is auto, cpu, cuda or cuda:N"


def device_name(device: "torch.device") -> str:
    import torch

    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{platform.machine()} CPU, {torch.get_num_threads()} threads"


def device_names() -> list[str]:
    """Every device of this machine that torch finds, if it is installed."""
    if find_spec("torch") is None:
        return [f"{platform.machine()} CPU"]
    import torch

    gpus = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return [device_name(torch.device("cpu")), *gpus]


def pick_device(name: str) -> "torch.device":
    """The device called `name`; `auto` is the GPU, if there is one."""
    import torch

    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise InputError(NO_DEVICE.format(name)) from error
    try:
        torch.zeros(1, device=device).item()
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(
            f"no device {name!r} here ({reason}); `semishot doctor` lists those available"
        ) from error
    return device


def check_device(name: str) -> None:
    """Refuse what is no device's name. Whether it is there is known when an encoder is loaded."""
    if not re.fullmatch(r"auto|cpu|cuda(:\d+)?", name):
        raise InputError(NO_DEVICE.format(name))
