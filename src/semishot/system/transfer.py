"""Move and copy single files: nothing is overwritten, and no name is removed before another is sure.

On one device a moved file gets its second name first and loses its first name then, so that it always
has one. Across devices it is copied, as `mv` does: with owner, mode, times and extended attributes where
the system permits, and without the setuid and setgid bits where the owner could not be kept. Files that
were one by a hard link are separate files there. Links are never followed, unless `links` says so.
"""

import errno
import hashlib
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from semishot.errors import InputError
from semishot.system.files import open_regular, real_place

BLOCK = 2**20
LARGEST = 2**30
"""Bytes of a file that is moved or copied: more are not read to find out which file it is."""
CHANGED = "it has changed since it was read"
NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL
SPECIAL = stat.S_ISUID | stat.S_ISGID
CAPABILITY = "security.capability"
"""The extended attribute that gives a program rights, as setuid does."""


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
    with open_regular(source, links=False) as file:
        if _digest(file) != digest:
            raise OSError(CHANGED)
        seen = os.fstat(file.fileno())
        try:
            _link(source, target, seen)
        except FileExistsError:
            raise
        except OSError as error:
            if error.errno != errno.EXDEV and _rename(source, target, seen):
                return
            file.seek(0)
            _copy(file, part, target, digest, moved=True)
        _leave(source, target, seen)


def copy_file(source: Path, target: Path, part: Path, digest: str) -> None:
    """Copy a file of this content, or the one that a link leads to, to a free name."""
    with open_regular(source, links=True) as file:
        _copy(file, part, target, digest, moved=False)


def drop(name: Path, kept: Path, digest: str) -> None:
    """Remove one of two names of a file, or one of two files that have this content."""
    with open_regular(kept, links=False) as file:
        stays = os.fstat(file.fileno())
        if _digest(file) != digest:
            raise OSError(f"{kept} has changed")
    with open_regular(name, links=False) as file:
        goes = os.fstat(file.fileno())
        one_file = os.path.samestat(goes, stays)
        if not one_file and _digest(file) != digest:
            raise OSError(CHANGED)
    if one_file and (goes.st_nlink < 2 or real_place(name) == real_place(kept)):
        raise OSError(f"it is {kept} itself, by way of a linked folder")
    if not _unchanged(name, goes):
        raise OSError(CHANGED)
    name.unlink()


def _digest(file: BinaryIO) -> str | None:
    """None for a sparse file of a terabyte, say, which would take an hour to read."""
    whole = hashlib.sha256()
    for block in _blocks(file):
        whole.update(block)
    return whole.hexdigest() if file.tell() <= LARGEST else None


def _blocks(file: BinaryIO) -> Iterator[bytes]:
    """The content, but not much more than LARGEST bytes of it, and nothing of a file that has more."""
    if os.fstat(file.fileno()).st_size > LARGEST:
        file.seek(0, os.SEEK_END)
    while file.tell() <= LARGEST and (block := file.read(BLOCK)):
        yield block


def _unchanged(path: Path, seen: os.stat_result) -> bool:
    """Whether this is still the file that was read, and nobody has written to it since."""
    now = os.lstat(path)
    same = os.path.samestat(now, seen)
    return same and (now.st_size, now.st_mtime_ns) == (seen.st_size, seen.st_mtime_ns)


def _link(source: Path, target: Path, seen: os.stat_result) -> None:
    """Give a file a second name."""
    os.link(source, target, follow_symlinks=False)  # never onto another file
    if not os.path.samestat(os.lstat(target), seen):  # another file took its name meanwhile
        if os.path.samestat(os.lstat(source), os.lstat(target)):
            target.unlink()
        raise InputError(f"{source} has changed since it was read")


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
    except OSError as error:
        with _also(error, target):
            target.unlink()
        raise


@contextmanager
def _also(error: OSError, name: Path) -> Iterator[None]:
    """Say that a name could not be taken back."""
    try:
        yield
    except OSError:
        said = f"{error.strerror or error}; its second name {name} cannot be removed"
        raise OSError(error.errno, said) from error


def _copy(file: BinaryIO, part: Path, target: Path, digest: str, moved: bool) -> None:
    """Copy an open file to a free name, which appears when the copy is complete."""
    with suppress(FileNotFoundError):
        part.unlink()  # left by a killed process
    try:
        with os.fdopen(os.open(part, NEW_FILE, 0o600), "wb") as written:
            whole = hashlib.sha256()
            for block in _blocks(file):
                whole.update(block)
                written.write(block)
            if whole.hexdigest() != digest:
                raise OSError(CHANGED)
            written.flush()
            _like(file.fileno(), written.fileno(), moved)
            os.fsync(written.fileno())
        _name(part, target)
    except OSError as error:
        if error.errno is not None:
            error.filename = str(target)  # the error of a full disk has no file name
        raise
    finally:
        with suppress(FileNotFoundError):
            part.unlink()
    _flush(target.parent)


def _name(part: Path, target: Path) -> None:
    try:
        os.link(part, target)
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links
        if os.path.lexists(target):
            raise FileExistsError(errno.EEXIST, f"{target} exists") from None
        part.rename(target)


def _like(read: int, written: int, moved: bool) -> None:
    """Give a copy the mode, times and extended attributes of its file; if it was moved, the owner too."""
    about = os.fstat(read)
    owned = moved and _chown(written, about)
    if hasattr(os, "listxattr"):
        with suppress(OSError):
            for name in os.listxattr(read):
                if owned or name != CAPABILITY:
                    with suppress(OSError):  # another file system may not have these
                        os.setxattr(written, name, os.getxattr(read, name))
    with suppress(OSError, AttributeError):  # not all file systems have modes, nor has Windows
        os.fchmod(written, stat.S_IMODE(about.st_mode) & (~0 if owned else ~SPECIAL))
    if os.utime in os.supports_fd:
        with suppress(OSError):
            os.utime(written, ns=(about.st_atime_ns, about.st_mtime_ns))


def _chown(written: int, about: os.stat_result) -> bool:
    """Whether the copy has the owner and group of its file."""
    if not hasattr(os, "fchown"):
        return False
    try:
        os.fchown(written, about.st_uid, about.st_gid)
    except OSError:
        with suppress(OSError):
            os.fchown(written, -1, about.st_gid)
        return False
    return True


def _flush(folder: Path) -> None:
    """Write a folder to its disk: the first name of a file must not be gone before the second is there."""
    with suppress(OSError):  # Windows does not open folders
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
