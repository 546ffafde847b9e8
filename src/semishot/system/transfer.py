"""Move and copy single files: nothing is overwritten, and no name is removed before another is sure.

On one device a moved file gets its second name first and loses its first name then, so that it always
has one. Across devices, or where files have one name only, it is copied or renamed. Links are never
followed, unless `links` says so.
"""

import errno
import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from semishot.errors import InputError
from semishot.system.files import open_regular, real_place

BLOCK = 2**20
LARGEST = 2**30
"""Bytes of a file that is moved or copied: more are not read to find out which file it is."""
CHANGED = "it has changed since it was read"


def digest_of(path: Path, *, links: bool = False) -> str | None:
    """SHA-256 of a regular file's content; None if it has more than LARGEST bytes."""
    with open_regular(path, links=links) as file:
        return _digest(file)


def is_file(path: Path, digest: str, *, links: bool = False) -> bool:
    """Whether there is a regular file of this content."""
    try:
        return digest_of(path, links=links) == digest
    except (FileNotFoundError, NotADirectoryError, InputError):
        return False


def move_file(source: Path, target: Path, part: Path, digest: str) -> None:
    """Move a file of this content to a free name; if that fails, it stays where it was, under one name.

    part: a name beside the target for an unfinished copy.
    """
    seen = _status(source, digest)
    try:
        os.link(source, target)  # never onto another file
    except FileExistsError:
        raise
    except OSError as error:
        if error.errno != errno.EXDEV and _rename(source, target, seen):
            return
        copy_file(source, target, part, digest, links=False)
    else:
        if not os.path.samestat(os.lstat(target), seen):  # another file took its name meanwhile
            if os.path.samestat(os.lstat(source), os.lstat(target)):
                target.unlink()
            raise InputError(f"{source} has changed since it was read")
    _leave(source, target, seen)


def copy_file(source: Path, target: Path, part: Path, digest: str, *, links: bool = True) -> None:
    """Copy a file of this content, or the one that a link leads to, to a free name.

    The name appears when the copy is complete, with the mode and the times of the file.
    """
    with suppress(FileNotFoundError):
        part.unlink()  # left by a killed process
    try:
        with open_regular(source, links=links) as file, part.open("xb") as written:
            whole = hashlib.sha256()
            for block in _blocks(file):
                whole.update(block)
                written.write(block)
            if whole.hexdigest() != digest:
                raise OSError(CHANGED)
            written.flush()
            os.fsync(written.fileno())
        with suppress(PermissionError):  # some file systems have no modes
            shutil.copystat(source, part)
        _name(part, target)
    except OSError as error:
        if error.errno is not None:
            error.filename = str(target)  # the error of a full disk has no file name
        raise
    finally:
        with suppress(FileNotFoundError):
            part.unlink()
    _flush(target.parent)


def drop(name: Path, kept: Path, digest: str) -> None:
    """Remove one of two names of a file, or one of two files that have this content."""
    stays, goes = _status(kept, digest, f"{kept} has changed"), _status(name, digest)
    if os.path.samestat(goes, stays) and (
        goes.st_nlink < 2 or real_place(name) == real_place(kept)
    ):
        raise OSError(f"it is {kept} itself, by way of a linked folder")
    if not _unchanged(name, goes):
        raise OSError(CHANGED)
    name.unlink()


def _status(path: Path, digest: str, changed: str = CHANGED) -> os.stat_result:
    """The status of a file whose content has this digest."""
    with open_regular(path, links=False) as file:
        if _digest(file) != digest:
            raise OSError(changed)
        return os.fstat(file.fileno())


def _digest(file: BinaryIO) -> str | None:
    """None for a sparse file of a terabyte, say, which would take an hour to read."""
    whole = hashlib.sha256()
    for block in _blocks(file):
        whole.update(block)
    return whole.hexdigest() if file.tell() <= LARGEST else None


def _blocks(file: BinaryIO) -> Iterator[bytes]:
    """The content; nothing of a file that has more than LARGEST bytes."""
    if os.fstat(file.fileno()).st_size > LARGEST:
        file.seek(0, os.SEEK_END)
    while file.tell() <= LARGEST and (block := file.read(BLOCK)):
        yield block


def _unchanged(path: Path, seen: os.stat_result) -> bool:
    """Whether this is still the file that was read, and nobody has written to it since."""
    now = os.lstat(path)
    same = os.path.samestat(now, seen)
    return same and (now.st_size, now.st_mtime_ns) == (seen.st_size, seen.st_mtime_ns)


def _rename(source: Path, target: Path, seen: os.stat_result) -> bool:
    """Rename a file where it cannot have two names; False on another device."""
    if not _unchanged(source, seen):
        raise OSError(CHANGED)
    if os.path.lexists(target):
        raise FileExistsError(errno.EEXIST, f"{target} exists")
    try:
        source.rename(target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        return False
    return True


def _leave(source: Path, target: Path, seen: os.stat_result) -> None:
    """Remove the first name of a file that has a second one, or a copy; else take that back."""
    try:
        now = os.lstat(source)
    except FileNotFoundError:
        return
    if not os.path.samestat(now, seen):
        return  # another file has taken its name; this one has been moved
    try:
        if not os.path.samestat(os.lstat(target), seen) and not _unchanged(source, seen):
            raise OSError(CHANGED)  # written to while it was copied
        source.unlink()
    except OSError:
        with suppress(OSError):
            target.unlink()
        raise


def _name(part: Path, target: Path) -> None:
    try:
        os.link(part, target)
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links
        if os.path.lexists(target):
            raise FileExistsError(errno.EEXIST, f"{target} exists") from None
        part.rename(target)


def _flush(folder: Path) -> None:
    """Write a folder to its disk: the first name of a file must not be gone before the second is there."""
    with suppress(OSError):  # Windows does not open folders
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
