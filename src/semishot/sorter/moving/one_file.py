"""Move, copy or link one file: nothing is overwritten, and no name is removed before another is sure.

A file that is moved on one disk gets a second name before it loses the first one, so that it always has
one. Elsewhere it is copied with what `shutil.copystat` keeps. Everything can be repeated after a kill: the
work of an earlier attempt is recognized by its content. Only a copy follows a link.
"""

import errno
import hashlib
import os
import shutil
from contextlib import suppress
from pathlib import Path

from semishot.errors import InputError
from semishot.sorter.requests import How
from semishot.system.files import create, open_regular, real_place

CHANGED = "it has changed since it was read"


def is_file(path: Path, digest: str, *, links: bool = False) -> bool:
    """Whether there is a regular file of this content, or a link to one if `links`."""
    try:
        with open_regular(path, links=links) as file:
            return hashlib.file_digest(file, "sha256").hexdigest() == digest
    except (FileNotFoundError, NotADirectoryError, InputError):
        return False


def is_placed(source: Path, target: Path, digest: str, how: How) -> bool:
    """Whether the target is what `place` makes of the source."""
    if how == "link":
        return target.is_symlink() and target.readlink() == source
    return is_file(target, digest)


def place(source: Path, target: Path, digest: str, how: How) -> None:
    """Move, copy or link a file of this content to a free name; if that fails, it stays where it was."""
    if real_place(source) == real_place(target):
        raise OSError(f"it is {target} itself, by way of a linked folder")
    remove_parts(source, target, digest)
    if os.path.lexists(target):
        if not is_placed(source, target, digest, how):
            raise FileExistsError(errno.EEXIST, f"{target} exists and is another file")
        if how == "move" and is_file(source, digest):  # killed between its two names
            _leave(source, target, _seen(source))
    elif how == "link":
        if not source.is_file():
            raise FileNotFoundError(errno.ENOENT, "it is gone, or not a file")
        target.symlink_to(source)
    else:
        seen = _seen(source)
        _bring(source, target, digest, how)
        if how == "move":
            _leave(source, target, seen)


def remove_parts(source: Path, target: Path, digest: str) -> None:
    """Remove what a killed process has left of its work at a file, in either direction."""
    for path in (source, target):
        if os.path.lexists(part := _part(path, digest)):
            part.unlink()


def _part(target: Path, digest: str) -> Path:
    """The temporary name of a file on its way: short, and used by nothing else."""
    return target.with_name(f".semishot-{digest[:32]}.part")


def _bring(source: Path, target: Path, digest: str, how: How) -> None:
    """Make the target, which appears when it is complete and of this content."""
    part = _part(target, digest)
    try:
        copied = _begin(source, part, how)
        if not is_file(part, digest):
            raise OSError(CHANGED)
        _name(part, target)
    finally:
        part.unlink(missing_ok=True)
    if copied:  # the first name must not be gone from its disk before the second is on the other
        with suppress(OSError):  # Windows does not open folders
            folder = os.open(target.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)


def _name(part: Path, target: Path) -> None:
    """Give a file its name, unless something has it."""
    try:
        os.link(part, target, follow_symlinks=False)
    except (OSError, NotImplementedError) as error:  # it exists, or this disk has no hard links
        if os.path.lexists(target):
            raise FileExistsError(errno.EEXIST, f"{target} exists") from error
        part.rename(target)


def _begin(source: Path, part: Path, how: How) -> bool:
    """Give a file a second name, or copy it; whether it was copied."""
    if how == "move":
        with suppress(OSError, NotImplementedError):  # another disk, or one without hard links
            os.link(source, part, follow_symlinks=False)
            return False
    with open_regular(source, links=how == "copy") as file, create(part) as copy:
        shutil.copyfileobj(file, copy)
        copy.flush()
        shutil.copystat(source, part)
        os.fsync(copy.fileno())
    return True


def _seen(path: Path) -> tuple[int, ...]:
    """What tells whether it is still the same file, without a change."""
    status = path.lstat()
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def _leave(source: Path, target: Path, seen: tuple[int, ...]) -> None:
    """Remove the first name of a file that is in its place; if that fails, take it back from there."""
    try:
        now = _seen(source)
        if now[:2] != seen[:2]:
            return  # another file has taken its name
        if now != seen:
            raise OSError(CHANGED)
        source.unlink()
    except FileNotFoundError:
        return  # the user has moved or deleted it
    except OSError:
        target.unlink()
        raise
