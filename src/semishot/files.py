"""Files and folders that appear whole or not at all; what killed processes leave half-done is swept."""

import errno
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from semishot.errors import InputError
from semishot.locks import abandoned, lock, lock_file

HALF_DONE = re.compile(r"\.(?P<name>.+)\.\d+\.(tmp|old)")
"""Beside NAME, while a process makes it or puts another in its place: `.NAME.PID.tmp`."""


def write_whole(path: Path, write: Callable[[Path], object]) -> None:
    """Let `write` fill a temporary file beside `path`, then rename it: readers never see half."""
    if not path.name:
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        sweep(path.parent, path.name)
        place = lock_file(temporary)  # as long as we live, it is no litter
        assert place is not None
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


def write_json(path: Path, value: Any) -> None:
    text = json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    write_whole(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


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
        return json.loads(path.read_text(encoding="utf-8"))


def read_records(path: Path) -> list[dict[str, Any]]:
    """The records of a result file; none if there is no such file."""
    try:
        held: list[dict[str, Any]] = read_json(path)
        if not isinstance(held, list) or not all(isinstance(record, dict) for record in held):
            raise InputError(f"{path} is damaged (it holds no list of records)")
    except FileNotFoundError:
        return []
    except InputError as error:
        raise InputError(f"{error}; delete it to measure again") from error
    return held


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


def sweep(folder: Path, name: str | None = None) -> None:
    """Remove what killed processes left half-done in `folder`: of `name`, or of everything.

    An old folder whose successor never came is put back.
    """
    for path in sorted(folder.iterdir()):
        found = HALF_DONE.fullmatch(path.name)
        if not found or name not in (None, found["name"]):
            continue
        if path.is_symlink() or not abandoned(path):  # we make no links
            continue
        replaced = folder / found["name"]
        if path.suffix == ".old" and not replaced.exists():
            path.rename(replaced)
        elif path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
