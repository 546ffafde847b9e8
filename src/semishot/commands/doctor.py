"""`semishot doctor`: versions, devices and data, for a bug report."""

import json
import os
import platform
from pathlib import Path

from semishot.commands.flags import Json
from semishot.system.flags import DataRoot


def doctor(data_root: DataRoot = None, as_json: Json = False) -> None:
    """Versions, devices and data: what a bug report needs."""
    found = examine(data_root)
    lines = "\n".join(f"{name}: {state}" for name, state in found.items())
    print(json.dumps(found, indent=1) if as_json else lines)


def examine(root: Path | None) -> dict[str, str]:
    from semishot import datasets
    from semishot.data.pool import data_root
    from semishot.system.devices import device_names
    from semishot.training.origin import versions

    return {
        **versions(),
        "platform": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        "devices": "; ".join(device_names()),
        "data root": str(data_root(root)),
        **{f"data: {name}": state for name, state in datasets.prepared(root).items()},
    }
