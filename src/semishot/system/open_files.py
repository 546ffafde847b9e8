"""Reading files: each is opened without blocking, must be a regular file, and is read up to a bound.

Every path that is read is opened here. A pipe would block and a device never end, so neither is opened;
the type is checked on the open file, as the path may lead elsewhere by then. A link is followed, unless
`links=False`. A disk that does not answer is given up after `deadlines.READ_SECONDS`.
"""

import errno
import io
import json
import os
import stat
import tarfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO, Any

from semishot.errors import InputError, reason_of
from semishot.system.deadlines import within_deadline

MOST_JSON = 256 * 2**20
"""The largest JSON file that is read, in bytes; a pool of a million classes needs half of it."""
MOST_TAR_HEADER = 2**13
DAMAGED = "it is damaged or of another version"
BUFFER, MOST_AT_ONCE = 2**18, 2**22
"""Bytes read at once from an open file: for small reads, and at most."""
PACKAGE = Path(__file__).parents[1]
NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0)
NO_WAIT: int | None = getattr(os, "RWF_NOWAIT", None)
FLAGS = 0
for _flag in ("O_NONBLOCK", "O_CLOEXEC", "O_NOCTTY", "O_BINARY"):  # not all systems have all
    FLAGS |= getattr(os, _flag, 0)


def open_regular(path: Path, *, links: bool = True) -> io.BufferedReader:
    """Open a regular file for reading. `links=False` refuses a link."""
    descriptor = within_deadline(partial(_opened, path, path, links), path, undo=os.close)
    return io.BufferedReader(_Patient(descriptor, str(path)), BUFFER)


def read_regular(path: Path, most: int, name: object = None) -> bytes:
    """The content of a regular file of at most `most` bytes. `name` is used in messages."""
    named = name or path
    whole = _Whole(path, most, named)
    return within_deadline(whole.read, named, lambda: whole.size)


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


def read_member(opened: zipfile.ZipFile, member: zipfile.ZipInfo | str, most: int) -> bytes:
    """A file in a zip, up to `most` bytes, in case its size is declared wrongly."""
    with opened.open(member) as file:
        return file.read(most)


def open_zip(path: Path) -> zipfile.ZipFile:
    file = open_regular(path)
    try:
        return _Zip(file)
    except BaseException:
        file.close()
        raise


def open_tar(path: Path | IO[bytes]) -> tarfile.TarFile:
    """An uncompressed tar; also one inside another that is open."""
    file = open_regular(path) if isinstance(path, Path) else path
    try:
        return _Tar.open(fileobj=file, mode="r:", tarinfo=_TarMember)
    except BaseException:
        file.close()
        raise


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
        raise error_type(f"cannot read {what} ({reason_of(error)}); {remedy}") from error


def _opened(path: Path, name: object, links: bool) -> int:
    status = path.stat() if links else path.lstat()
    if not links and stat.S_ISLNK(status.st_mode):
        raise InputError(f"{name} is a link, not a file")
    check_regular(status, name)  # before it is opened: opening a device may have an effect
    try:
        descriptor = os.open(path, os.O_RDONLY | FLAGS | (0 if links else NO_FOLLOW))
    except OSError as error:
        if error.errno == errno.ELOOP and not links:  # it was replaced since
            raise InputError(f"{name} is a link, not a file") from error
        raise
    try:
        check_regular(os.fstat(descriptor), name)  # it may have been replaced since
    except InputError:
        os.close(descriptor)
        raise
    return descriptor


class _Whole:
    """The content of a file, read by another thread."""

    def __init__(self, path: Path, most: int, name: object) -> None:
        self.path, self.most, self.name = path, most, name
        self.size = 0  # until it is known

    def read(self) -> bytes:
        most = self.most
        with open(_opened(self.path, self.name, True), "rb") as file:
            self.size = size = os.fstat(file.fileno()).st_size
            if size > most:
                raise InputError(f"{self.name} has {size:,} bytes, more than {most:,}")
            content = _some(file, size + 1, self.name)
            while size < len(content) <= most:  # it grows, or is in /proc, whose files have size 0
                size = len(content)
                content += _some(file, min(size, most - size) + 1, self.name)
        if len(content) > most:
            raise InputError(f"{self.name} has more than {most:,} bytes")
        return content


def _some(file: IO[bytes], most: int, name: object) -> bytes:
    content: bytes | None = file.read(most)
    if content is None:  # it would block, as some files in /proc do
        raise InputError(f"{name} is not a regular file")
    return content


class _Patient(io.RawIOBase):
    """An open file; each read has a deadline."""

    def __init__(self, descriptor: int, name: str) -> None:
        self.descriptor, self.name = descriptor, name
        self.busy = self.left = False

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self.descriptor

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        return os.lseek(self.descriptor, offset, whence)

    def readinto(self, buffer: Any, /) -> int:
        if (cached := self._cached(buffer)) is not None:
            return cached
        self.busy = True
        try:
            found = within_deadline(partial(self._read, min(len(buffer), MOST_AT_ONCE)), self.name)
        except BlockingIOError as error:
            raise InputError(f"{self.name} is not a regular file") from error
        buffer[: len(found)] = found  # here: a thread left behind must not write to it
        return len(found)

    def _cached(self, buffer: Any) -> int | None:
        """Read what is in memory already, which does not block; None if nothing is."""
        if NO_WAIT is None:
            return None
        try:
            return os.preadv(self.descriptor, [buffer], -1, NO_WAIT)  # -1: where the file stands
        except OSError:  # it is on the disk, or the disk does not know how
            return None

    def _read(self, most: int) -> bytes:
        try:
            return os.read(self.descriptor, most)
        finally:
            self.busy = False
            if self.left:
                os.close(self.descriptor)

    def close(self) -> None:
        if self.closed:
            return
        super().close()
        if self.busy:
            self.left = True  # its number must not be used again while a thread may still read
        else:
            os.close(self.descriptor)


class _Zip(zipfile.ZipFile):
    """A zip that closes its file."""

    def close(self) -> None:
        held = self.fp
        super().close()
        if held is not None:
            held.close()


class _Tar(tarfile.TarFile):
    """A tar that closes its file."""

    def close(self) -> None:
        super().close()
        if self.fileobj is not None:
            self.fileobj.close()


class _TarMember(tarfile.TarInfo):
    """A member with a bounded extended header: tarfile takes time quadratic in its length."""

    def _proc_pax(self, opened: tarfile.TarFile) -> tarfile.TarInfo:
        if self.size > MOST_TAR_HEADER:
            raise tarfile.ReadError(f"a header of {self.size:,} bytes")
        parsed: tarfile.TarInfo = super()._proc_pax(opened)  # type: ignore[misc]
        return parsed
