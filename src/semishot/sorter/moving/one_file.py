"""Move and copy single files: nothing is overwritten, and no name is removed before another is sure.

On one device a moved file gets its second name first and loses its first name then, so that it always
has one. Across devices it is copied with what `shutil.copystat` keeps. Everything can be repeated after a
kill: the work of an earlier attempt is recognized by its content. Links are never followed, unless `links`
says so.
"""

import errno
import hashlib
import io
import os
import shutil
from contextlib import suppress
from pathlib import Path

from semishot.errors import InputError
from semishot.system.files import open_regular, real_place

CHANGED = "it has changed since it was read"


def is_file(path: Path, digest: str, *, links: bool = False) -> bool:
    """Whether there is a regular file of this content."""
    try:
        with open_regular(path, links=links) as file:
            return _digest(file) == digest
    except (FileNotFoundError, NotADirectoryError, InputError):
        return False


def is_there(target: Path, digest: str) -> bool:
    """Whether the target is a file of this content; anything else is in the way."""
    if not os.path.lexists(target):
        return False
    if not is_file(target, digest):
        raise FileExistsError(errno.EEXIST, f"{target} exists and is another file")
    return True


def move_file(source: Path, target: Path, digest: str) -> None:
    """Move a file of this content to a free name; if that fails, it stays where it was, under one name."""
    if real_place(source) == real_place(target):
        raise OSError(f"it is {target} itself, by way of a linked folder")
    if is_there(target, digest):
        if not is_file(source, digest):
            return  # it was moved before
        seen = os.lstat(source)
    else:
        with open_regular(source, links=False) as file:
            if _digest(file) != digest:
                raise OSError(CHANGED)
            seen = os.fstat(file.fileno())
            if _name_twice(source, target, seen, file, digest):
                return
    _leave(source, target, seen)


def copy_file(source: Path, target: Path, digest: str) -> None:
    """Copy a file of this content, or the one that a link leads to, to a free name."""
    if not is_there(target, digest):
        with open_regular(source, links=True) as file:
            _copy(file, source, target, digest)


def remove_part(target: Path, digest: str) -> None:
    """Remove the unfinished copy that a kill has left."""
    if os.path.lexists(part := _part(target, digest)):
        part.unlink()


def _digest(file: io.BufferedReader | io.BufferedRandom) -> str:
    return hashlib.file_digest(file, "sha256").hexdigest()


def _name_twice(
    source: Path, target: Path, seen: os.stat_result, file: io.BufferedReader, digest: str
) -> bool:
    """Give a file its second name, or make a copy; True: it was renamed, where neither is possible."""
    try:
        os.link(source, target, follow_symlinks=False)  # never onto another file
    except FileExistsError:
        raise
    except OSError as error:
        if error.errno != errno.EXDEV:  # a file system without hard links
            if not _unchanged(source, seen):
                raise OSError(CHANGED) from error
            if os.path.lexists(target):
                raise FileExistsError(errno.EEXIST, f"{target} exists") from error
            source.rename(target)
            return True
        file.seek(0)
        _copy(file, source, target, digest)
        return False
    if not os.path.samestat(os.lstat(target), seen):  # another file took its name meanwhile
        if os.path.samestat(os.lstat(source), os.lstat(target)):
            target.unlink()
        raise OSError(CHANGED)
    return False


def _unchanged(path: Path, seen: os.stat_result) -> bool:
    """Whether this is still the file that was read, and nobody has written to it since."""
    now = os.lstat(path)
    same = os.path.samestat(now, seen)
    return same and (now.st_size, now.st_mtime_ns) == (seen.st_size, seen.st_mtime_ns)


def _leave(source: Path, target: Path, seen: os.stat_result) -> None:
    """Remove the first name of a file that has a second one, or a copy; else take that back."""
    try:
        if not os.path.samestat(os.lstat(source), seen):
            return  # another file has taken its name; this one has been moved
    except FileNotFoundError:
        return
    try:
        if not _unchanged(source, seen):
            raise OSError(CHANGED)
        source.unlink()
    except OSError as error:
        try:
            target.unlink()
        except OSError:
            reason = f"{error.strerror or error}; its second name {target} cannot be removed"
            raise OSError(error.errno, reason) from error
        raise


def _part(target: Path, digest: str) -> Path:
    """The temporary name of a copy: short, and used by nothing else."""
    key = os.fsencode(target.name) + b"\0" + digest.encode()
    return target.with_name(f".semishot-{hashlib.sha256(key).hexdigest()[:32]}.part")


def _copy(file: io.BufferedReader, source: Path, target: Path, digest: str) -> None:
    """Copy an open file to a free name, which appears when the copy is complete."""
    remove_part(target, digest)
    part = _part(target, digest)
    try:
        with part.open("xb+") as written:
            shutil.copyfileobj(file, written)
            written.seek(0)
            if _digest(written) != digest:
                raise OSError(CHANGED)
            shutil.copystat(source, part)
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
    except OSError as error:  # a file system without hard links
        if os.path.lexists(target):
            raise FileExistsError(errno.EEXIST, f"{target} exists") from error
        part.rename(target)


def _flush(folder: Path) -> None:
    """Write a folder to its disk: the first name of a file must not be gone before the second is there."""
    with suppress(OSError):  # Windows does not open folders
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
