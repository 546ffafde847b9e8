"""What a bug report needs: versions, devices, data."""

import os
import platform
from pathlib import Path

from semishot import datasets
from semishot.data.pool import data_root


def examine(root: Path | None = None) -> dict[str, str]:
    from semishot.system.devices import device_names
    from semishot.training.records import versions

    return {
        **versions(),
        "platform": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        "devices": "; ".join(device_names()),
        "data root": str(data_root(root)),
        **{f"data: {name}": state for name, state in datasets.prepared(root).items()},
    }
