"""Images in folders, zips and tars: a small value says where an image is, and any process can read it.

Nothing is extracted. ILSVRC-12's training images are found in every form in which they are usually kept.
"""

import os
import re
import stat
import tarfile
import threading
import zipfile
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from semishot.data.decoding import MOST_BYTES
from semishot.errors import InputError
from semishot.system.files import open_regular, read_regular, reading, real_path

LARGEST = 16 * 2**20  # bytes of an image in an archive
REMEDY = "get the file again"
ILSVRC_TAR = "ILSVRC2012_img_train.tar"
ILSVRC_TREES = ("", "train", "ILSVRC2012_img_train", "ILSVRC/Data/CLS-LOC/train", "images")


@dataclass(frozen=True, slots=True)
class WholeFile:
    path: str

    @property
    def name(self) -> str:
        return self.path


@dataclass(frozen=True, slots=True)
class ZipMember:
    path: str
    member: str

    @property
    def name(self) -> str:
        return f"{self.path}/{self.member}"


@dataclass(frozen=True, slots=True)
class ByteRange:
    """Part of a file, such as a member of a tar."""

    path: str
    part: str
    """For messages."""
    start: int
    size: int

    @property
    def name(self) -> str:
        return f"{self.path}/{self.part}"


ImageSource = WholeFile | ZipMember | ByteRange
_ONE_AT_A_TIME = threading.Lock()
"""Threads that share an open zip read wrong bytes in Python 3.12.3, on machines with many cores."""


def read_bytes(source: ImageSource) -> bytes:
    """The bytes of an image, at most `LARGEST` of an archive's; in any thread."""
    with reading(source.name, REMEDY):
        if isinstance(source, WholeFile):
            return read_regular(Path(source.path), MOST_BYTES)
        if isinstance(source, ZipMember):
            with _ONE_AT_A_TIME, _opened_zip(source.path).open(source.member) as file:
                data = file.read(LARGEST + 1)  # its size may be declared wrongly
        else:
            with open_regular(Path(source.path)) as file:
                file.seek(source.start)
                data = file.read(min(source.size, LARGEST + 1))
        if len(data) > LARGEST:
            raise InputError(f"{source.name} has more than {LARGEST:,} bytes")
        if isinstance(source, ByteRange) and len(data) != source.size:
            raise EOFError(f"it ends after {len(data):,} of {source.size:,} bytes")
        return data


def ilsvrc_files(source: Path, labels: Iterable[str]) -> dict[str, list[ImageSource]]:
    """class -> its files in natural order, from the tar of tars, the classes' tars, or folders."""
    files: dict[str, list[ImageSource]] = {}
    if (tar := source / ILSVRC_TAR).is_file():
        with reading(tar, REMEDY), tarfile.open(tar, "r:") as opened:
            wanted = {f"{label}.tar": label for label in labels}
            for member in _members(opened):
                label = wanted.get(member.name.rsplit("/", 1)[-1], "")
                inner = opened.extractfile(member) if label and member.isreg() else None
                if inner is not None:
                    with tarfile.open(fileobj=inner, mode="r:") as class_tar:
                        files[label] = _in_tar(label, class_tar, tar, member.offset_data)
        return files
    for label in labels:
        for tree in map(source.joinpath, ILSVRC_TREES):
            if (tree / label).is_dir():
                inside = {p.name: WholeFile(str(p)) for p in (tree / label).iterdir()}
                files[label] = _in_order(label, inside)
            elif (tar := tree / f"{label}.tar").is_file():
                with reading(tar, REMEDY), tarfile.open(tar, "r:") as opened:
                    files[label] = _in_tar(label, opened, tar, 0)
    return files


def _in_tar(label: str, opened: tarfile.TarFile, path: Path, start: int) -> list[ImageSource]:
    files = {
        m.name.rsplit("/", 1)[-1]: ByteRange(str(path), m.name, start + m.offset_data, m.size)
        for m in _members(opened)
        if m.isreg() and not m.issparse()
    }
    return _in_order(label, files)


def _members(opened: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    """All members, or an error: tarfile reads a damaged header as the end, which would shift ranks."""
    yield from opened
    assert opened.fileobj is not None
    opened.fileobj.seek(opened.offset)
    if opened.fileobj.read(tarfile.BLOCKSIZE) != bytes(tarfile.BLOCKSIZE):
        raise EOFError(f"it is damaged at byte {opened.offset:,}")


def _in_order(label: str, files: Mapping[str, ImageSource]) -> list[ImageSource]:
    pattern = re.compile(re.escape(label) + r"_(\d+)\.jpe?g", re.IGNORECASE)
    numbered = [(int(m[1]), name) for name in files if (m := pattern.fullmatch(name))]
    return [files[name] for _, name in sorted(numbered)]


@lru_cache(maxsize=8)
def _opened_zip(path: str) -> zipfile.ZipFile:
    return zipfile.ZipFile(path)


# Every file below a folder: sorted, no folder twice, no cycles


@dataclass(frozen=True)
class Entry:
    path: Path
    hidden: bool = False
    problem: str = ""
    """Why it is neither a regular file nor a folder that was searched."""


def walk(root: Path, leave_out: Collection[Path] = (), hidden: bool = False) -> Iterator[Entry]:
    """Regular files below `root`, and entries that cannot be read or followed, with the reason.

    Links are followed last, so that a folder is found by its own path if it has one below `root`.
    leave_out: resolved paths of folders that are skipped. hidden: walk hidden folders, too.
    """
    seen: dict[tuple[bool, int, int], Path] = {}
    waiting, links = [(root, False)], deque[tuple[Path, bool]]()
    while waiting or links:
        path, concealed = waiting.pop() if waiting else links.popleft()
        problem, action = "", "opened"
        try:
            status = path.stat()
            key = (concealed, status.st_dev, status.st_ino)
            if stat.S_ISREG(status.st_mode):
                yield Entry(path, concealed)
            elif not stat.S_ISDIR(status.st_mode):
                problem = "not a regular file"
            elif real_path(path) in leave_out:
                continue
            elif key in seen:
                problem = f"links back to {seen[key]}"
            else:
                seen[key] = path
                action = "listed"
                with os.scandir(path) as found:
                    names = {entry.name: entry.is_symlink() for entry in found}
                inside = [(name, concealed or is_hidden(name)) for name in sorted(names)]
                if not hidden:
                    inside = [(name, is_in) for name, is_in in inside if not is_in]
                links += [(path / name, is_in) for name, is_in in inside if names[name]]
                waiting += [(path / name, is_in) for name, is_in in inside[::-1] if not names[name]]
        except OSError as error:
            problem = f"cannot be {action} ({error.strerror})"
        if problem:
            yield Entry(path, concealed, problem)


def is_hidden(*parts: str) -> bool:
    """Whether a part of a path was created by a desktop or a version control system."""
    return any(part.startswith(".") or part == "__MACOSX" for part in parts)
