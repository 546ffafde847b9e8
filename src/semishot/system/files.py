"""Files and folders that appear whole or not at all; what killed processes leave half-done is swept."""

import errno
import json
import os
import re
import shutil
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from semishot.errors import InputError
from semishot.system.locks import PAUSE, abandoned, lock, lock_file

MOST_JSON = 256 * 2**20
"""Bytes; a pool of a million classes has half as many."""
HALF_DONE = re.compile(r"\.(?P<name>.+)\.\d+\.(tmp|old)")
"""Beside NAME, while a process makes it or puts another in its place: `.NAME.PID.tmp`."""


def write_whole(path: Path, write: Callable[[Path], object]) -> None:
    """Let `write` fill a temporary file beside `path`, then rename it: readers never see half.

    `write` fills the file that is there: another one under its name would be swept as litter.
    """
    if not path.name:
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    _check_replaceable(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        sweep(path.parent, path.name)
        while (place := lock_file(temporary)) is None:  # another process looks whether it is litter
            time.sleep(PAUSE)
        try:
            write(temporary)
            with temporary.open("rb") as file:
                os.fsync(file.fileno())  # the rename must not overtake the content
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
            os.close(place)
    except OSError as error:
        error.filename = str(path)  # a full disk has no name, and a temporary file says little
        raise


def _check_replaceable(path: Path) -> None:
    """A pipe or a device would be gone; a link may go, and a folder is refused by the rename."""
    if os.path.lexists(path):
        mode = path.lstat().st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISLNK(mode) or stat.S_ISDIR(mode)):
            raise InputError(f"{path} is no regular file; choose another name")


def write_json(path: Path, value: Any) -> None:
    text = json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    write_whole(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def read_regular(path: Path, most: int) -> bytes:
    """All of a regular file of at most `most` bytes: a pipe would wait for ever, a device never end."""
    check_regular(path)
    with open(path, "rb", opener=_without_waiting) as file:
        size = check_regular(path, os.fstat(file.fileno()))
        if size > most:
            raise InputError(f"{path} has {size:,} bytes, more than {most:,}")
        return file.read(size)


def check_regular(path: Path, about: os.stat_result | None = None) -> int:
    """The size of a regular file, after following links; InputError for anything else."""
    about = about or path.stat()
    if not stat.S_ISREG(about.st_mode):
        raise InputError(f"{path} is no regular file")
    return about.st_size


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))  # not on Windows


@contextmanager
def understood(what: object) -> Iterator[None]:
    """What was read is to blame for whatever ends the block: content of any kind raises a dozen types."""
    try:
        yield
    except (InputError, OSError):
        raise
    except Exception as error:
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise InputError(f"{what} is damaged, or of another version ({reason})") from error


def read_json(path: Path) -> Any:
    """Whatever a file holds as JSON."""
    with understood(path):
        return json.loads(read_regular(path, MOST_JSON).decode())


@contextmanager
def whole_folder(folder: Path) -> Iterator[Path]:
    """A temporary folder that replaces `folder` when the block succeeds and vanishes when it fails."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    sweep(folder.parent, folder.name)
    temporary = folder.with_name(f".{folder.name}.{os.getpid()}.tmp")
    old = folder.with_name(f".{folder.name}.{os.getpid()}.old")
    temporary.mkdir()
    place = os.open(temporary, os.O_RDONLY)
    lock(place)
    try:
        yield temporary
        if folder.exists():
            folder.rename(old)
        try:
            temporary.rename(folder)
        except BaseException:
            if old.exists():
                old.rename(folder)
            raise
        shutil.rmtree(old, ignore_errors=True)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
        os.close(place)


def remove(path: Path) -> None:
    """Whatever it is, or nothing; what a link leads to stays."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def sweep(folder: Path, name: str | None = None) -> None:
    """Remove what killed processes left half-done in `folder`: of `name`, or of everything.

    An old folder whose successor never came is put back.
    """
    for path in sorted(folder.iterdir()):
        found = HALF_DONE.fullmatch(path.name)
        if not found or name not in (None, found["name"]) or path.is_symlink():  # we make no links
            continue
        with abandoned(path) as left:
            if left:
                _remove(path, folder / found["name"])


def _remove(half_done: Path, whole: Path) -> None:
    if half_done.suffix == ".old" and not whole.exists():
        half_done.rename(whole)
    elif half_done.is_dir():
        shutil.rmtree(half_done, ignore_errors=True)
    else:
        half_done.unlink(missing_ok=True)
