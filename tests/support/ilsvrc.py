"""The ILSVRC-12 training images as people hold them: a tree, a tar for each class, a tar of tars."""

import io
import tarfile
from pathlib import Path

from semishot.data.image_sources import ILSVRC_TAR

Classes = dict[str, dict[str, bytes]]
"""By class, each file's content by its name."""


def write_tree(classes: Classes, source: Path, below: str = "train") -> None:
    for label, files in classes.items():
        folder = source / below / label
        folder.mkdir(parents=True)
        for name, data in {**files, ".DS_Store": b""}.items():
            (folder / name).write_bytes(data)


def tar_of(files: dict[str, bytes]) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as opened:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            opened.addfile(member, io.BytesIO(data))
    return file.getvalue()


def write_class_tars(classes: Classes, source: Path) -> None:
    source.mkdir(exist_ok=True)
    for label, files in classes.items():
        (source / f"{label}.tar").write_bytes(tar_of(files))


def write_tar(classes: Classes, source: Path) -> None:
    source.mkdir(exist_ok=True)
    inner = {f"{label}.tar": tar_of(files) for label, files in classes.items()}
    inner["n07777777.tar"] = b"a class that is not used"
    (source / ILSVRC_TAR).write_bytes(tar_of(inner))
