"""What a bug report needs: versions, devices, data."""

import os
import platform
from pathlib import Path

import torch

from semishot import datasets
from semishot.evaluate import device_name, versions
from semishot.image_pool import data_root


def examine(root: Path | None = None) -> dict[str, str]:
    devices = [device_name(torch.device("cpu"))]
    devices += [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return {
        **versions(),
        "platform": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        "devices": "; ".join(devices),
        "data root": str(data_root(root)),
        **{f"data: {name}": state for name, state in datasets.prepared(root).items()},
    }
