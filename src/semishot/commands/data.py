"""`semishot data prepare|verify|list` and `semishot doctor`: data sets and the installation."""

import json
import os
import platform
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from semishot.commands.flags import Flags, Json
from semishot.data.settings import Lists, Reduction, Rotations
from semishot.system.devices import DataRoot

NO_TORCH = "not installed; training needs it: pip install 'semishot[train]'"
Name = Annotated[
    tyro.conf.Positional[str],
    tyro.conf.arg(help="Which data set; `semishot data list` shows them."),
]


@dataclass(frozen=True)
class PrepareRequest:
    """Where the files of a data set come from, and which of them are used: see `datasets.prepare`."""

    source: Path | None = None
    """The folder that holds its published files."""
    download: bool = False
    """Fetch the published files, checked by their checksums. The only use of the network."""
    splits: str | None = None
    """Only these splits, as in `train,test`, if the data set can be prepared in part."""
    partial: bool = False
    """Accept a source that lacks classes, if the data set can be prepared in part."""
    own_name: Annotated[str | None, tyro.conf.arg(name="name")] = None
    """Of `folder`: what your data set is called, as in `--dataset NAME`; by default `folder`."""
    size: int | None = None
    """Of `folder`: the side of its images in pixels; by default 28 for drawings, 84 for others."""
    reduction: Reduction | None = None
    """Of `omniglot`: how drawings are made smaller; by default antialiased, in the authors' code cubic."""
    rotations: Rotations | None = None
    """Of `omniglot`: how drawings are turned; by default exact, in the authors' code warped."""
    lists: Lists | None = None
    """Of `mini-imagenet`: swapped exchanges its validation and test classes, as the first version of the
    authors' code did."""


def prepare(name: Name, request: Flags[PrepareRequest], data_root: DataRoot = None) -> None:
    """Turn raw files into an image pool below the data root."""
    from semishot import datasets

    splits = request.splits.split(",") if request.splits else None
    datasets.prepare(name, root=data_root, **{**vars(request), "splits": splits})
    verify(request.own_name or name, data_root)


def verify(name: Name, data_root: DataRoot = None) -> None:
    """Recompute a pool's fingerprint and print what it holds, what is missing and what differs."""
    from semishot import datasets

    print("\n".join(datasets.verify(name, data_root)))


def list_prepared(data_root: DataRoot = None, as_json: Json = False) -> None:
    """List the data sets this version knows and which are prepared."""
    from semishot import datasets

    _print(datasets.prepared(data_root), as_json)


def doctor(data_root: DataRoot = None, as_json: Json = False) -> None:
    """Versions, devices and data: what a bug report needs."""
    from semishot import datasets
    from semishot.data import pool
    from semishot.sorter.encoders.image_encoder import runtime
    from semishot.system.devices import device_names
    from semishot.training.run_folder import versions

    found, onnxruntime = versions(), runtime()
    providers = ", ".join(onnxruntime.get_available_providers())
    about = {
        **found,
        "torch": found.get("torch", NO_TORCH),
        "onnxruntime": f"{onnxruntime.__version__}, {providers}",
        "platform": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        "devices": "; ".join(device_names()),
        "data root": str(pool.data_root(data_root)),
        **{f"data: {name}": state for name, state in datasets.prepared(data_root).items()},
    }
    _print(about, as_json)


def _print(about: dict[str, str], as_json: bool) -> None:
    lines = "\n".join(f"{name}: {state}" for name, state in about.items())
    print(json.dumps(about, indent=1) if as_json else lines)
