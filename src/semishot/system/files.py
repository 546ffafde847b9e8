"""Files and folders: regular files are read up to a bound; what is written appears whole."""

import errno
import io
import json
import os
import re
import secrets
import shutil
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from semishot.errors import InputError, reason_of

MOST_JSON = 256 * 2**20
"""The largest JSON file that is read, in bytes; a pool of a million classes needs half of it."""
DAMAGED = "it is damaged or of another version"
PACKAGE = Path(__file__).parents[1]
TEMPORARY = re.compile(r"\.(?P<name>.+)\.\d+\.(tmp|old)")
"""`.NAME.NUMBER.tmp` and `.NAME.NUMBER.old`, beside NAME while a process writes or replaces it."""
ABANDONED_SECONDS = 24 * 3600
"""Older temporary files belong to nobody: the process that wrote them was killed."""


def open_regular(path: Path, *, links: bool = True) -> io.BufferedReader:
    """Open a regular file for reading, or the one that a link leads to, unless `links=False`."""
    status = path.stat() if links else path.lstat()
    if stat.S_ISLNK(status.st_mode):
        raise InputError(f"{path} is a link, not a file")
    check_regular(status, path)
    return path.open("rb")


def check_regular(status: os.stat_result, name: object) -> int:
    """The size of a regular file; InputError for anything else."""
    if not stat.S_ISREG(status.st_mode):
        raise InputError(f"{name} is not a regular file")
    return status.st_size


def read_regular(path: Path, most: int, name: object = None) -> bytes:
    """The content of a regular file of at most `most` bytes. `name` is used in messages."""
    size = check_regular(path.stat(), name or path)
    if size > most:
        raise InputError(f"{name or path} has {size:,} bytes, more than {most:,}")
    return path.read_bytes()


def read_text(path: Path, most: int) -> str:
    """The text of a file of at most `most` bytes, in UTF-8; a byte order mark is left out."""
    return read_regular(path, most).decode("utf-8-sig")


def read_json(path: Path) -> Any:
    """The value in a JSON file."""
    with reading(path):
        return json.loads(read_regular(path, MOST_JSON).decode())


def own_text(name: str | Path) -> str:
    """A file of this package, such as `report/page.css`."""
    return (PACKAGE / name).read_text(encoding="utf-8")


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
        raise error_type(f"cannot read {what} ({reason_of(error)}); {remedy}") from error


def real_path(path: Path) -> Path:
    """The absolute path without links; of links that lead in a circle, or nowhere, as far as they lead.

    As `Path.resolve`, which raises RuntimeError for a circle until Python 3.12.
    """
    return Path(os.path.realpath(path))


def real_place(path: Path) -> Path:
    """The one name of a file, whatever links lead to its folder; the file itself may be a link."""
    return real_path(path.parent) / path.name


def write_whole(path: Path, content: bytes | str) -> None:
    """Write a file, in UTF-8 if `content` is text: readers see the old file or the new one."""
    if not path.name:
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if path.is_fifo() or path.is_socket() or path.is_char_device() or path.is_block_device():
        raise InputError(f"{path} is not a regular file; choose another name")
    temporary = _beside(path, "tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        sweep(path.parent, path.name)
        try:
            with temporary.open("xb") as file:
                file.write(content.encode() if isinstance(content, str) else content)
                file.flush()
                os.fsync(file.fileno())  # the rename must not overtake the content
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        error.filename = str(path)  # that of a full disk has none, others have the temporary one
        raise


def write_json(path: Path, value: Any) -> None:
    text = json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    write_whole(path, text)


def create(path: Path) -> io.BufferedRandom:
    """Open a new file for writing; FileExistsError if there is anything of this name."""
    return path.open("x+b")


def append_line(path: Path, text: str) -> None:
    """Add a line to a file, created if needed."""
    with path.open("ab") as file:
        file.write(f"{text}\n".encode())


def check_own(path: Path) -> None:
    """Refuse to write to anything in OUT but a regular file; there may be none yet."""
    if os.path.lexists(path) and not stat.S_ISREG(path.lstat().st_mode):
        raise InputError(
            f"{path} is a link or not a regular file, and would be written to: remove it, or choose "
            "another --out"
        )


@contextmanager
def whole_folder(folder: Path) -> Iterator[Path]:
    """A temporary folder that replaces `folder` when the block succeeds and is removed when it fails.

    Whoever calls it has locked the folder: no other process replaces it at this time.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    sweep(folder.parent, folder.name, age=0)
    temporary, old = _beside(folder, "tmp"), _beside(folder, "old")
    temporary.mkdir()
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
        with suppress(OSError):
            remove(old)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _beside(path: Path, ending: str) -> Path:
    return path.with_name(f".{path.name}.{secrets.randbelow(10**9)}.{ending}")


def remove(path: Path) -> None:
    """Remove a file, a folder or a link, if it exists; the target of a link stays."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def sweep(folder: Path, name: str | None = None, age: float = ABANDONED_SECONDS) -> None:
    """Remove the temporary files that killed processes left in `folder`: those of `name`, or all.

    A folder that was moved aside but never replaced gets its name back. `age`: pass 0 only if no other
    process can be writing there.
    """
    start = "." if name is None else f".{name}."
    with os.scandir(folder) as entries:  # a path for each of thousands would take milliseconds
        names = sorted(entry.name for entry in entries if entry.name.startswith(start))
    for entry in names:
        match, path = TEMPORARY.fullmatch(entry), folder / entry
        if not match or name not in (None, match["name"]) or path.is_symlink():  # never ours
            continue
        with suppress(OSError):  # another process sweeps, too
            if path.suffix == ".old" and not (final := folder / match["name"]).exists():
                path.rename(final)
            elif time.time() - path.stat().st_mtime >= age:
                remove(path)
