"""Writing files and folders: they appear whole, and what killed processes left is cleaned up.

Every path that is written is opened here, in `locks` or in `npy`: never through a link, and never a pipe
or a device.
"""

import errno
import io
import json
import os
import re
import shutil
import stat
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from semishot.errors import InputError, printable
from semishot.system.locks import PAUSE, lock, lock_file, lock_if_free, open_own

TEMPORARY = re.compile(r"\.(?P<name>.+)\.\d+\.(tmp|old)")
"""`.NAME.PID.tmp` and `.NAME.PID.old`, beside NAME while a process writes or replaces it."""


def write_whole(path: Path, content: bytes | str) -> None:
    """Write a file, in UTF-8 if `content` is text: readers see the old file or the new one."""
    data = content.encode() if isinstance(content, str) else content
    write_whole_with(path, lambda file: file.write(data))


def write_whole_with(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Let `write` fill a temporary file beside `path`, then rename it: readers never see a partial file."""
    if not path.name:
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    check_replaceable(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        sweep(path.parent, path.name)
        while (descriptor := lock_file(temporary)) is None:  # another process may be cleaning up
            time.sleep(PAUSE)
        with os.fdopen(descriptor, "r+b") as file:
            try:
                file.truncate(0)  # a killed process of the same number may have left it
                write(file)
                file.flush()
                os.fsync(file.fileno())  # the rename must not overtake the content
                temporary.replace(path)
            finally:
                temporary.unlink(missing_ok=True)
    except OSError as error:
        error.filename = str(path)  # that of a full disk has none, others have the temporary one
        raise


def create(path: Path) -> io.BufferedRandom:
    """Open a new file for writing; FileExistsError if there is anything of this name."""
    return open(
        path, "r+b", opener=lambda name, _: open_own(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
    )


def without_name(folder: Path) -> io.FileIO:
    """A file in `folder` that has no name there, and is gone when it is closed or its process ends."""
    return tempfile.TemporaryFile(dir=folder, buffering=0)


def append_line(path: Path, text: str) -> None:
    """Add a line to a file, created if needed."""
    with os.fdopen(open_own(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT), "ab") as file:
        file.write(f"{text}\n".encode())


def check_replaceable(path: Path) -> None:
    """Refuse to replace a pipe or a device. A link may be replaced; renaming onto a folder fails."""
    if os.path.lexists(path):
        mode = path.lstat().st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISLNK(mode) or stat.S_ISDIR(mode)):
            raise InputError(f"{path} is not a regular file; choose another name")


def check_own(path: Path) -> None:
    """Refuse to write to anything in OUT but a regular file with one name; there may be none yet."""
    try:
        about = path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return
    if not stat.S_ISREG(about.st_mode) or about.st_nlink > 1:
        raise InputError(
            f"{path} is a link or not a regular file, and would be written to: remove it, or choose "
            "another --out"
        )


def write_json(path: Path, value: Any) -> None:
    text = json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    write_whole(path, text)


@contextmanager
def whole_folder(folder: Path) -> Iterator[Path]:
    """A temporary folder that replaces `folder` when the block succeeds and is removed when it fails."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    sweep(folder.parent, folder.name)
    temporary = folder.with_name(f".{folder.name}.{os.getpid()}.tmp")
    old = folder.with_name(f".{folder.name}.{os.getpid()}.old")
    temporary.mkdir()
    descriptor = os.open(temporary, os.O_RDONLY | os.O_CLOEXEC)
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
        _discard(old)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
        os.close(descriptor)


def _discard(old: Path) -> None:
    """Remove a folder, or a link to one, that was replaced; print a warning if it cannot be removed."""
    try:
        if old.is_symlink():
            old.unlink()
        elif old.exists():
            old.chmod(0o700)  # it may be read-only
            shutil.rmtree(old)
    except OSError as error:
        reason = error.strerror or str(error)
        print(
            printable(f"{old} was replaced and cannot be removed ({reason}): remove it"),
            file=sys.stderr,
        )


def remove(path: Path) -> None:
    """Remove a file, a folder or a link, if it exists; the target of a link stays."""
    check_replaceable(path)
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def sweep(folder: Path, name: str | None = None) -> None:
    """Remove the temporary files that killed processes left in `folder`: those of `name`, or all.

    A folder that was moved aside but never replaced gets its name back.
    """
    start = "." if name is None else f".{name}."
    with os.scandir(folder) as entries:  # a path for each of thousands would take milliseconds
        names = sorted(entry.name for entry in entries if entry.name.startswith(start))
    for entry in names:
        found, path = TEMPORARY.fullmatch(entry), folder / entry
        if not found or name not in (None, found["name"]) or path.is_symlink():  # never ours
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
