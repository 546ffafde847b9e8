"""Move and copy single files: nothing is overwritten, and no name is removed before another is sure.

On one disk a moved file gets its second name first and loses its first name then, so that it always has
one. Elsewhere it is copied with what `shutil.copystat` keeps. Everything can be repeated after a kill: the
work of an earlier attempt is recognized by its content. Links are never followed, unless `links` says so.
"""

import errno
import hashlib
import io
import os
import shutil
from contextlib import suppress
from pathlib import Path

from semishot.errors import InputError
from semishot.system.files import create, open_regular, real_place

CHANGED = "it has changed since it was read"


def is_file(path: Path, digest: str, *, links: bool = False) -> bool:
    """Whether there is a regular file of this content."""
    try:
        with open_regular(path, links=links) as file:
            return _digest(file) == digest
    except (FileNotFoundError, NotADirectoryError, InputError):
        return False


def move_file(source: Path, target: Path, digest: str) -> None:
    """Move a file of this content to a free name; if that fails, it stays where it was, under one name."""
    if real_place(source) == real_place(target):
        raise OSError(f"it is {target} itself, by way of a linked folder")
    if _is_there(target, digest):
        if not is_file(source, digest):
            return  # it was moved before
        seen = os.lstat(source)
    else:
        with open_regular(source, links=False) as file:
            if _digest(file) != digest:
                raise OSError(CHANGED)
            seen = os.fstat(file.fileno())
            try:
                os.link(source, target, follow_symlinks=False)  # never onto another file
            except FileExistsError:
                raise
            except (OSError, NotImplementedError):  # another disk, or one without hard links
                file.seek(0)
                _copy(file, source, target, digest)
    _leave(source, target, seen)


def copy_file(source: Path, target: Path, digest: str) -> None:
    """Copy a file of this content, or the one that a link leads to, to a free name."""
    if not _is_there(target, digest):
        with open_regular(source, links=True) as file:
            _copy(file, source, target, digest)


def remove_part(target: Path, digest: str) -> None:
    """Remove the unfinished copy that a kill has left."""
    if os.path.lexists(part := _part(target, digest)):
        part.unlink()


def _digest(file: io.BufferedReader | io.BufferedRandom) -> str:
    return hashlib.file_digest(file, "sha256").hexdigest()


def _is_there(target: Path, digest: str) -> bool:
    """Whether the target is a file of this content; anything else is in the way."""
    if not os.path.lexists(target):
        return False
    if not is_file(target, digest):
        raise FileExistsError(errno.EEXIST, f"{target} exists and is another file")
    return True


def _leave(source: Path, target: Path, seen: os.stat_result) -> None:
    """Remove the first name of a file that has a second one, or a copy; else take that back."""
    try:
        now = os.lstat(source)
        if not os.path.samestat(now, seen):
            return  # another file has taken its name; this one has been moved
        if (now.st_size, now.st_mtime_ns) != (seen.st_size, seen.st_mtime_ns):
            raise OSError(CHANGED)
        source.unlink()
    except FileNotFoundError:
        return
    except OSError:
        target.unlink()
        raise


def _part(target: Path, digest: str) -> Path:
    """The temporary name of a copy: short, and used by nothing else."""
    return target.with_name(f".semishot-{digest[:32]}.part")


def _copy(file: io.BufferedReader, source: Path, target: Path, digest: str) -> None:
    """Copy an open file to a free name, which appears when the copy is complete."""
    remove_part(target, digest)
    part = _part(target, digest)
    try:
        with create(part) as written:
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
