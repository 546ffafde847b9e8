"""Devices and their names."""

import platform
from typing import TYPE_CHECKING

from semishot.errors import InputError

if TYPE_CHECKING:
    import torch


def device_name(device: "torch.device") -> str:
    import torch

    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{platform.machine()} CPU, {torch.get_num_threads()} threads"


def device_names() -> list[str]:
    """Every device of this machine."""
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
        raise InputError(f"no device {name!r}: it is auto, cpu, cuda or cuda:N") from error
    try:
        torch.zeros(1, device=device).item()
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(
            f"no device {name!r} here ({reason}); `semishot doctor` lists those available"
        ) from error
    return device


def check_device(name: str) -> None:
    """Refuse a device that is not here. Every machine has `auto` and `cpu`: these need no torch yet."""
    if name not in ("auto", "cpu"):
        pick_device(name)
