"""Files and folders: regular files are read up to a bound; what is written appears whole."""

import errno
import io
import json
import os
import re
import shutil
import stat
import sys
import tarfile
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, BinaryIO

from semishot.errors import InputError, printable, reason_of

if sys.platform != "win32":
    import fcntl

MOST_JSON = 256 * 2**20
"""The largest JSON file that is read, in bytes; a pool of a million classes needs half of it."""
BINARY = getattr(os, "O_BINARY", 0)  # of Windows
DAMAGED = "it is damaged or of another version"
PACKAGE = Path(__file__).parents[1]
TEMPORARY = re.compile(r"\.(?P<name>.+)\.\d+\.(tmp|old)")
"""`.NAME.PID.tmp` and `.NAME.PID.old`, beside NAME while a process writes or replaces it."""
PAUSE = 0.02
"""Seconds between two attempts at a temporary file that another process is cleaning up."""
ABANDONED_SECONDS = 24 * 3600
"""On Windows, where folders cannot be locked, older temporary files belong to nobody."""


def open_regular(path: Path, *, links: bool = True) -> io.BufferedReader:
    """Open a regular file for reading, or the one that a link leads to, unless `links=False`."""
    status = path.stat() if links else path.lstat()
    if stat.S_ISLNK(status.st_mode):
        raise InputError(f"{path} is a link, not a file")
    check_regular(status, path)
    return os.fdopen(os.open(path, os.O_RDONLY | BINARY), "rb")


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
    content = path.read_bytes()
    if len(content) > most:
        raise InputError(f"{name or path} has more than {most:,} bytes")
    return content


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


def open_zip(path: Path) -> zipfile.ZipFile:
    check_regular(path.stat(), path)
    return zipfile.ZipFile(path)


def read_member(opened: zipfile.ZipFile, member: zipfile.ZipInfo | str, most: int) -> bytes:
    """A file in a zip, up to `most` bytes, in case its size is declared wrongly."""
    with opened.open(member) as file:
        return file.read(most)


def open_tar(path: Path | IO[bytes]) -> tarfile.TarFile:
    """An uncompressed tar; also one inside another that is open."""
    if not isinstance(path, Path):
        return tarfile.open(fileobj=path, mode="r:")
    check_regular(path.stat(), path)
    return tarfile.open(path, "r:")


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
    data = content.encode() if isinstance(content, str) else content
    write_whole_with(path, lambda file: file.write(data))


def write_json(path: Path, value: Any) -> None:
    text = json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    write_whole(path, text)


def write_whole_with(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Let `write` fill a temporary file beside `path`, then rename it: readers never see a partial file."""
    if not path.name:
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    check_replaceable(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        sweep(path.parent, path.name)
        with os.fdopen(_lock_temporary(temporary), "r+b") as file:
            try:
                file.truncate(0)  # a killed process of the same number may have left it
                write(file)
                file.flush()
                os.fsync(file.fileno())  # the rename must not overtake the content
                if sys.platform == "win32":
                    file.close()  # it cannot be renamed while it is open
                temporary.replace(path)
            finally:
                with suppress(OSError):
                    temporary.unlink()
    except OSError as error:
        error.filename = str(path)  # that of a full disk has none, others have the temporary one
        raise


def create(path: Path) -> io.BufferedRandom:
    """Open a new file for writing; FileExistsError if there is anything of this name."""
    return path.open("x+b")


def append_line(path: Path, text: str) -> None:
    """Add a line to a file, created if needed."""
    with path.open("ab") as file:
        file.write(f"{text}\n".encode())


def check_replaceable(path: Path) -> None:
    """Refuse to replace a pipe or a device. A link may be replaced; renaming onto a folder fails."""
    if os.path.lexists(path):
        mode = path.lstat().st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISLNK(mode) or stat.S_ISDIR(mode)):
            raise InputError(f"{path} is not a regular file; choose another name")


def check_own(path: Path) -> None:
    """Refuse to write to anything in OUT but a regular file; there may be none yet."""
    if os.path.lexists(path) and not stat.S_ISREG(path.lstat().st_mode):
        raise InputError(
            f"{path} is a link or not a regular file, and would be written to: remove it, or choose "
            "another --out"
        )


@contextmanager
def whole_folder(folder: Path) -> Iterator[Path]:
    """A temporary folder that replaces `folder` when the block succeeds and is removed when it fails."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    sweep(folder.parent, folder.name)
    temporary = folder.with_name(f".{folder.name}.{os.getpid()}.tmp")
    old = folder.with_name(f".{folder.name}.{os.getpid()}.old")
    temporary.mkdir()
    with _lock_if_free(temporary):
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


def _discard(old: Path) -> None:
    """Remove a folder, or a link to one, that was replaced; print a warning if it cannot be removed."""
    try:
        if old.is_symlink():
            old.unlink()
        elif old.exists():
            old.chmod(0o700)  # it may be read-only
            shutil.rmtree(old)
    except OSError as error:
        line = f"{old} was replaced and cannot be removed ({reason_of(error)}): remove it"
        print(printable(line), file=sys.stderr)


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
    start = "." if name is None else f".{name}."
    with os.scandir(folder) as entries:  # a path for each of thousands would take milliseconds
        names = sorted(entry.name for entry in entries if entry.name.startswith(start))
    for entry in names:
        match, path = TEMPORARY.fullmatch(entry), folder / entry
        if not match or name not in (None, match["name"]) or path.is_symlink():  # never ours
            continue
        with _lock_if_free(path) as abandoned:
            if abandoned:
                _restore_or_remove(path, folder / match["name"])


def _restore_or_remove(temporary: Path, final: Path) -> None:
    if temporary.suffix == ".old" and not final.exists():
        temporary.rename(final)
    elif temporary.is_dir():
        shutil.rmtree(temporary, ignore_errors=True)
    else:
        temporary.unlink(missing_ok=True)


def _lock_temporary(path: Path) -> int:
    """Open and lock a temporary file, created if needed: `sweep` of another process leaves it alone."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | BINARY, 0o666)
        if _lock(descriptor) is not False and os.fstat(descriptor).st_nlink:
            return descriptor
        os.close(descriptor)  # another process is cleaning up, or has done so
        time.sleep(PAUSE)


@contextmanager
def _lock_if_free(path: Path) -> Iterator[bool]:
    """Lock a temporary file or folder; False if it is gone or the process that locked it still runs."""
    try:
        if sys.platform == "win32":
            yield time.time() - path.stat().st_mtime > ABANDONED_SECONDS
            return
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        yield False
        return
    try:
        yield _lock(descriptor) is True
    finally:
        os.close(descriptor)


def _lock(descriptor: int) -> bool | None:
    """Lock an open file until it is closed; False if another process has, None if locks do not work here."""
    if sys.platform == "win32":
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a network disk without locks
        return None
    return True
