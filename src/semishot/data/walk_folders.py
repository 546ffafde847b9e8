"""Every file below a folder: sorted, no folder twice, no cycles."""

import stat
from collections import deque
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from semishot.system.files import real_path


@dataclass(frozen=True)
class Entry:
    path: Path
    hidden: bool = False
    problem: str = ""
    """Why it is neither a regular file nor a folder that was searched."""


def walk(root: Path, leave_out: Collection[Path] = (), hidden: bool = False) -> Iterator[Entry]:
    """Regular files below `root`, and entries that cannot be read or followed, with the reason.

    Links are followed last, so that a folder is found by its own path if it has one below `root`.
    leave_out: resolved paths of folders that are skipped. hidden: walk hidden folders, too.
    """
    seen: dict[tuple[bool, int, int], Path] = {}
    waiting, links = [root], deque[Path]()
    while waiting or links:
        path = waiting.pop() if waiting else links.popleft()
        concealed = is_hidden(*path.relative_to(root).parts)
        problem, action = "", "opened"
        try:
            status = path.stat()
            key = (concealed, status.st_dev, status.st_ino)
            if stat.S_ISREG(status.st_mode):
                yield Entry(path, concealed)
            elif not stat.S_ISDIR(status.st_mode):
                problem = "not a regular file"
            elif real_path(path) in leave_out:
                continue
            elif key in seen:
                problem = f"links back to {seen[key]}"
            else:
                seen[key] = path
                action = "listed"
                inside = [p for p in sorted(path.iterdir()) if hidden or not is_hidden(p.name)]
                links += [p for p in inside if p.is_symlink()]
                waiting += [p for p in reversed(inside) if not p.is_symlink()]
        except OSError as error:
            problem = f"cannot be {action} ({error.strerror})"
        if problem:
            yield Entry(path, concealed, problem)


def is_hidden(*parts: str) -> bool:
    """Whether a part of a path was created by a desktop or a version control system."""
    return any(part.startswith(".") or part == "__MACOSX" for part in parts)
