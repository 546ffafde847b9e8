"""Atomic writes of files and folders, cleanup after killed processes, and bounded reads."""

import errno
import io
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
from semishot.system.locks import PAUSE, lock, lock_file, lock_if_free

MOST_JSON = 256 * 2**20
"""The largest JSON file that is read, in bytes; a pool of a million classes needs half of it."""
DAMAGED = "it is damaged or of another version"
READ_ONLY = (
    os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
)  # not all systems have both
TEMPORARY = re.compile(r"\.(?P<name>.+)\.\d+\.(tmp|old)")
"""`.NAME.PID.tmp` and `.NAME.PID.old`, beside NAME while a process writes or replaces it."""


def write_whole(path: Path, write: Callable[[Path], object]) -> None:
    """Let `write` fill a temporary file beside `path`, then rename it: readers never see a partial file.

    `write` must write to the existing file: a new file of that name would not be locked, and another
    process might remove it.
    """
    if not path.name:
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    _check_replaceable(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        sweep(path.parent, path.name)
        while (descriptor := lock_file(temporary)) is None:  # another process may be cleaning up
            time.sleep(PAUSE)
        try:
            write(temporary)
            with temporary.open("rb") as file:
                os.fsync(file.fileno())  # the rename must not overtake the content
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
            os.close(descriptor)
    except OSError as error:
        error.filename = str(
            path
        )  # "disk full" has no file name, other errors have the temporary one
        raise


def _check_replaceable(path: Path) -> None:
    """Refuse to replace a pipe or a device. A link may be replaced; renaming onto a folder fails."""
    if os.path.lexists(path):
        mode = path.lstat().st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISLNK(mode) or stat.S_ISDIR(mode)):
            raise InputError(f"{path} is not a regular file; choose another name")


def write_json(path: Path, value: Any) -> None:
    text = json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    write_whole(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def open_regular(path: Path, name: object = None) -> io.BufferedReader:
    """Open a regular file; a pipe could block and a device never end. `name` is used in messages."""
    check_regular(path.stat(), name or path)  # opening a device may have an effect
    descriptor = os.open(path, READ_ONLY)
    try:
        check_regular(os.fstat(descriptor), name or path)  # it may have been replaced since
    except InputError:
        os.close(descriptor)
        raise
    return os.fdopen(descriptor, "rb")


def read_regular(path: Path, most: int, name: object = None) -> bytes:
    """The content of a regular file of at most `most` bytes. `name` is used in messages."""
    with open_regular(path, name) as file:
        size = os.fstat(file.fileno()).st_size
        if size > most:
            raise InputError(f"{name or path} has {size:,} bytes, more than {most:,}")
        return file.read(size)


def check_regular(status: os.stat_result, name: object) -> int:
    """The size of a regular file; InputError for anything else."""
    if not stat.S_ISREG(status.st_mode):
        raise InputError(f"{name} is not a regular file")
    return status.st_size


@contextmanager
def reading(
    what: object, remedy: str = DAMAGED, error_type: type[InputError] = InputError
) -> Iterator[None]:
    """Turn any error in parsing `what` into one line; parsers raise many types for damaged content.

    Errors of the operating system are not changed, except for an invalid seek, which damaged content
    can cause too.
    """
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):
            raise
        reason = " ".join(str(error).split())[:300] or type(error).__name__
        raise error_type(f"cannot read {what} ({reason}); {remedy}") from error


def read_json(path: Path) -> Any:
    """The value in a JSON file."""
    with reading(path):
        return json.loads(read_regular(path, MOST_JSON).decode())


@contextmanager
def whole_folder(folder: Path) -> Iterator[Path]:
    """A temporary folder that replaces `folder` when the block succeeds and is removed when it fails."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    sweep(folder.parent, folder.name)
    temporary = folder.with_name(f".{folder.name}.{os.getpid()}.tmp")
    old = folder.with_name(f".{folder.name}.{os.getpid()}.old")
    temporary.mkdir()
    descriptor = os.open(temporary, os.O_RDONLY)
    lock(descriptor)
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
        os.close(descriptor)


def remove(path: Path) -> None:
    """Remove a file, a folder or a link, if it exists; the target of a link stays."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def sweep(folder: Path, name: str | None = None) -> None:
    """Remove the temporary files that killed processes left in `folder`: those of `name`, or all.

    A folder that was moved aside but never replaced gets its name back.
    """
    for path in sorted(folder.iterdir()):
        found = TEMPORARY.fullmatch(path.name)
        if (
            not found or name not in (None, found["name"]) or path.is_symlink()
        ):  # semishot creates no links
            continue
        with lock_if_free(path) as locked:
            if locked:
                _restore_or_remove(path, folder / found["name"])


def _restore_or_remove(temporary: Path, final: Path) -> None:
    if temporary.suffix == ".old" and not final.exists():
        temporary.rename(final)
    elif temporary.is_dir():
        shutil.rmtree(temporary, ignore_errors=True)
    else:
        temporary.unlink(missing_ok=True)
