"""One file of a sorting: moved, copied or linked to its place, and taken back.

Every function can be repeated after a kill: the work of an earlier attempt is recognized. Sources and
targets are regular files, not links to them; nothing is overwritten, and what fails leaves the file where
it was.
"""

import errno
import hashlib
import os
from contextlib import suppress
from pathlib import Path

from semishot.errors import InputError
from semishot.sorter.moving.journal import Sorting, Step
from semishot.sorter.requests import How
from semishot.system.files import real_path, real_place
from semishot.system.transfer import CHANGED, copy_file, drop, is_file, move_file


def check_folder(folder: Path) -> None:
    """Refuse a folder of OUT/sorted, or OUT/sorted itself, that is a link."""
    for place in (folder.parent, folder):
        if place.is_symlink():
            raise InputError(
                f"{place} is a link to elsewhere; nothing is sorted into it: remove the link"
            )


def is_sorted(how: How, step: Step, path: Path) -> bool:
    """Whether this is the file, copy or link that a step has made."""
    if how == "link":
        return path.is_symlink() and path.readlink() == step.source
    return is_file(path, step.digest)


def sort_one(sorting: Sorting, step: Step) -> None:
    """Do one step, or what is left of it."""
    target, earlier = sorting.target(step), sorting.earlier(step)
    check_folder(target.parent)
    target.parent.mkdir(parents=True, exist_ok=True)
    _clean(sorting, step)
    if earlier is not None and not earlier.parent.is_symlink():
        _move_on(sorting.how, step, earlier, target)
    if sorting.how == "link":
        _link(step.source, target)
    elif sorting.how == "copy":
        if not _is_there(target, step.digest):
            copy_file(step.source, target, _part(target, step.digest), step.digest)
    else:
        _move(step.source, target, step.digest)


def _move_on(how: How, step: Step, earlier: Path, target: Path) -> None:
    """Move a sorted file, copy or link from one class to another, if it is still there."""
    if not is_sorted(how, step, earlier):
        return  # done already, or it is no longer there
    if how == "link":
        _link(step.source, target)
        earlier.unlink()
    elif _is_there(target, step.digest):
        drop(earlier, target, step.digest)
    else:
        move_file(earlier, target, _part(target, step.digest), step.digest)


def _link(source: Path, target: Path) -> None:
    if target.is_symlink() and target.readlink() == source:
        return
    if not source.is_file():
        raise FileNotFoundError(errno.ENOENT, "it is gone, or not a file")
    target.symlink_to(source)


def _move(source: Path, target: Path, digest: str) -> None:
    home = real_path(source.parent) == source.parent
    if home and _one_file(source, target) and not is_file(source, digest):
        target.unlink()  # its second name, which a kill has left: it was written to since
        raise OSError(CHANGED)
    if not _is_there(target, digest):
        _check_home(source)
        move_file(source, target, _part(target, digest), digest)
    elif home and is_file(source, digest):  # its first name; any other file there stays
        try:
            drop(source, target, digest)
        except OSError:
            with suppress(OSError):
                drop(target, source, digest)
            raise


def _is_there(target: Path, digest: str) -> bool:
    """Whether the target is a file of this content; what else there is, is in the way."""
    if not os.path.lexists(target):
        return False
    if not is_file(target, digest):
        raise FileExistsError(errno.EEXIST, f"{target} exists and is another file")
    return True


def _one_file(one: Path, other: Path) -> bool:
    """Whether these are two names of one file."""
    try:
        seen, about = os.lstat(one), os.lstat(other)
    except OSError:
        return False
    two_names = os.path.samestat(seen, about) and seen.st_nlink > 1
    return two_names and real_place(one) != real_place(other)


def _check_home(source: Path) -> None:
    """Refuse to move a file from, or back to, a folder that is now behind a link."""
    if real_path(source.parent) != source.parent:
        raise OSError(
            f"{source.parent} is a link to elsewhere now: restore the folder, or name the folder where its "
            "files belong, `semishot undo OUT --below FOLDER`"
        )


def _part(target: Path, digest: str) -> Path:
    """The temporary name of a copy: short, and used by nothing else."""
    said = os.fsencode(target.name) + b"\0" + os.fsencode(digest)
    return target.with_name(f".semishot-{hashlib.sha256(said).hexdigest()[:32]}.part")


def _clean(sorting: Sorting, step: Step) -> None:
    """Remove the unfinished copies that a kill has left."""
    for path in (sorting.target(step), sorting.earlier(step), step.source):
        if path is not None and os.path.lexists(part := _part(path, step.digest)):
            part.unlink()


def take_back(sorting: Sorting, step: Step, found: Path | None, *, linked: bool) -> bool:
    """Move one file back, or remove one copy or link; False if there is nothing to do.

    found: where the file was found in OUT/sorted.
    linked: the user has named the folder where files belong, so links may lead there.
    """
    target = found or sorting.target(step)
    for folder in {
        path.parent for path in (target, sorting.target(step), sorting.earlier(step)) if path
    }:
        if folder.is_symlink() or folder.parent.is_symlink():
            raise OSError(f"{folder} is a link to elsewhere")
    _clean(sorting, step)
    source = real_place(step.source) if linked else step.source
    done = _TAKE_BACK[sorting.how](source, step, target)
    earlier = sorting.earlier(step)
    if earlier is not None and earlier != target and is_sorted(sorting.how, step, earlier):
        _TAKE_BACK[sorting.how](source, step, earlier)  # a kill came between its two names
    return done


def _unlink(source: Path, step: Step, target: Path) -> bool:
    if not os.path.lexists(target):
        return False
    if not is_sorted("link", step, target):
        raise OSError("it is no longer the link that was made")
    target.unlink()
    return True


def _uncopy(source: Path, step: Step, target: Path) -> bool:
    if not os.path.lexists(target):
        return False
    if not is_file(target, step.digest):
        raise OSError("it has changed since it was sorted")
    if source.is_symlink():
        if not is_file(source, step.digest, links=True) or source.samefile(target):
            raise OSError(f"it is kept: {source} is gone, has changed or leads to it")
        target.unlink()
    elif is_file(source, step.digest):
        drop(target, source, step.digest)
    else:
        raise OSError(f"it is kept: {source} is gone or has changed")
    return True


def _put_back(source: Path, step: Step, target: Path) -> bool:
    if not os.path.lexists(target):
        if not os.path.lexists(source):
            raise FileNotFoundError(errno.ENOENT, f"it is gone, and {source} is not there either")
        return False
    if not is_file(target, step.digest):
        if is_file(source, step.digest):
            return False  # it was never moved, and another file lies in the way
        raise OSError("it has changed since it was sorted")
    if source == step.source:
        _check_home(source)
    if not os.path.lexists(source):
        source.parent.mkdir(parents=True, exist_ok=True)
        move_file(target, source, _part(source, step.digest), step.digest)
    elif not is_file(source, step.digest):
        raise OSError(f"{source} exists again, with different content")
    else:
        try:
            drop(target, source, step.digest)
        except OSError:
            with suppress(OSError):
                if _one_file(source, target):  # our second name
                    drop(source, target, step.digest)
            raise
    return True


_TAKE_BACK = {"link": _unlink, "copy": _uncopy, "move": _put_back}
