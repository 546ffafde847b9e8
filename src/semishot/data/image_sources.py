"""Images in files, zips and tars: a string says where one lies, and any process can read it.

Nothing is extracted. ILSVRC-12's training images are found in each form in which people hold them.
"""

import re
import tarfile
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import IO

from semishot.errors import InputError
from semishot.system.files import read_regular

LARGEST = 16 * 2**20  # bytes of one image file
LARGEST_HEADER = 2**13
ILSVRC_TAR = "ILSVRC2012_img_train.tar"
ILSVRC_TREES = ("", "train", "ILSVRC2012_img_train", "ILSVRC/Data/CLS-LOC/train", "images")


def read_bytes(source: str) -> tuple[bytes, str]:
    """The encoded image that a source string names, and a name for errors."""
    kind, path, *place = source.split("\0")
    name = "/".join([path, *place[:1]])
    with readable(name):
        if kind == "file":
            data = read_regular(Path(path), LARGEST)
        elif kind == "zip":
            with _opened_zip(path).open(place[0]) as file:
                data = file.read(LARGEST)  # bounded, in case the declared size is a lie
        else:
            start, size = map(int, place[1:])
            data = _slice(Path(path), start, size)
            if len(data) != size:
                raise EOFError(f"it ends after {len(data):,} of {size:,} bytes")
    return data, name


def in_file(path: Path) -> str:
    return f"file\0{path}"


def in_zip(path: Path, member: zipfile.ZipInfo) -> str:
    check_size(member.file_size, f"{path}/{member.filename}")
    return f"zip\0{path}\0{member.filename}\0{member.CRC}"


def in_slice(path: Path, name: str, start: int, size: int, kind: str = "slice") -> str:
    """A part of a file, such as a member of a tar; `name` is for messages, `kind` for its reader."""
    check_size(size, f"{path}/{name}")
    return f"{kind}\0{path}\0{name}\0{start}\0{size}"


def ilsvrc_files(source: Path, labels: Iterable[str]) -> dict[str, list[str]]:
    """class -> its files in natural order, from the tar of tars, the classes' tars, or folders."""
    found: dict[str, list[str]] = {}
    if (tar := source / ILSVRC_TAR).is_file():
        with readable(tar), tarfile.open(tar, "r:", tarinfo=_Member) as opened:  # read in place
            wanted = {f"{label}.tar": label for label in labels}
            for member in _members(opened):
                label = wanted.get(member.name.rsplit("/", 1)[-1], "")
                inner = opened.extractfile(member) if label and member.isreg() else None
                if inner is not None:
                    with inner, _opened_tar(inner) as class_tar:
                        files = _in_tar(class_tar, tar, member.offset_data)
                    found[label] = _in_order(label, files)
        return found
    for label in labels:
        for tree in map(source.joinpath, ILSVRC_TREES):
            if (tree / label).is_dir():
                files = {p.name: in_file(p) for p in (tree / label).iterdir()}
                found[label] = _in_order(label, files)
            elif (tar := tree / f"{label}.tar").is_file():
                with readable(tar), tarfile.open(tar, "r:", tarinfo=_Member) as class_tar:
                    found[label] = _in_order(label, _in_tar(class_tar, tar, 0))
    return found


class _Member(tarfile.TarInfo):
    """Of a tar whose extended headers are short: the time tarfile takes for one grows with its square."""

    def _proc_pax(self, opened: tarfile.TarFile) -> tarfile.TarInfo:
        if self.size > LARGEST_HEADER:
            raise tarfile.ReadError(f"a header of {self.size:,} bytes")
        parsed: tarfile.TarInfo = super()._proc_pax(opened)  # type: ignore[misc]
        return parsed


def _opened_tar(file: IO[bytes]) -> tarfile.TarFile:
    return tarfile.open(fileobj=file, mode="r:", tarinfo=_Member)


def _in_tar(opened: tarfile.TarFile, path: Path, start: int) -> dict[str, str]:
    found = {}
    for member in _members(opened):
        if member.isreg() and not member.issparse():
            place = start + member.offset_data
            name = member.name.rsplit("/", 1)[-1]
            found[name] = in_slice(path, member.name, place, member.size)
    return found


def _members(opened: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    """All members, or an error: tarfile takes a damaged header for the end, and ranks would shift."""
    yield from opened
    assert opened.fileobj is not None
    opened.fileobj.seek(opened.offset)
    if opened.fileobj.read(tarfile.BLOCKSIZE) != bytes(tarfile.BLOCKSIZE):
        raise EOFError(f"it is damaged at byte {opened.offset:,}")


def _in_order(label: str, files: Mapping[str, str]) -> list[str]:
    pattern = re.compile(re.escape(label) + r"_(\d+)\.jpe?g", re.IGNORECASE)
    numbered = [
        (int(m[1]), where) for name, where in files.items() if (m := pattern.fullmatch(name))
    ]
    return [where for _, where in sorted(numbered)]


def _slice(path: Path, start: int, most: int) -> bytes:
    with path.open("rb") as file:
        file.seek(start)
        return file.read(most)


@lru_cache(maxsize=8)
def _opened_zip(path: str) -> zipfile.ZipFile:
    return zipfile.ZipFile(path)


def check_size(size: int, where: object) -> None:
    if size > LARGEST:
        raise InputError(
            f"{where} has {size:,} bytes, more than {LARGEST:,}: no image of ILSVRC-12"
        )


@contextmanager
def readable(what: object) -> Iterator[None]:
    """Damaged files raise a dozen types in zipfile, tarfile and csv; all mean: get it again."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise InputError(f"cannot read {what} ({reason}); get the file again") from error
