"""What must hold after a command has met a hostile tree."""

import hashlib
import os
import re
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

TEMPORARY = re.compile(r"\..+\.\d+\.(tmp|old)|\.semishot-.+\.part|.*\.building|\.(.+\.)?lock")
OLD = ".old"
DRAWN = ("data/glyphs/images.npy", "data/glyphs/pool.json")
"""Drawn again, both of them, where the second is missing or leads nowhere."""
SCRATCH = "out/.features.npy"
MOST_LINES = 12
MOST_READ = 2**24
GROWING = (
    "out/pictures",
    "out/embeddings",
    "out/sorted",
    "cache",
    "half",
    "runs",
    "pile",
    "home",
    "data/glyphs",
)
"""Folders in which names depend on what a command has found; the glyphs are drawn where they are missing."""
OF_A_RUN = re.compile(
    r"runs/.+/(model\.safetensors|log\.jsonl|(config|result|training)\.json|state.*\.pt)"
)
"""What is trained again where it is damaged."""
BY_CONTENT = re.compile(r"(out/pictures|(out/embeddings|cache)/\w+)/[0-9a-f]{32}\.\w+")
"""Files of ours that are named by what they hold: those that nothing refers to any more are removed."""


@dataclass(frozen=True)
class Seen:
    """One entry, without following it."""

    mode: int
    """Type and permissions."""
    size: int
    changed: int
    """When, in nanoseconds; of folders 0, for their entries come and go."""
    content: str
    """A digest, the target of a link, or the number of a device."""

    @property
    def replaceable(self) -> bool:
        """A file or a link: what stands in the place of our own file may be replaced if it is one."""
        return stat.S_ISREG(self.mode) or stat.S_ISLNK(self.mode)


def snapshot(folder: Path) -> dict[str, Seen]:
    """All below the folder, by the path relative to it."""
    found: dict[str, Seen] = {}
    waiting = [""]
    while waiting:
        here = waiting.pop()
        with os.scandir(folder / here) as entries:
            for entry in entries:
                name = f"{here}{os.sep}{entry.name}".lstrip(os.sep)
                about = entry.stat(follow_symlinks=False)
                found[name] = seen(entry.path, about)
                if stat.S_ISDIR(about.st_mode) and name.count(os.sep) < 120:
                    waiting.append(name)
    return found


def seen(path: str, about: os.stat_result) -> Seen:
    kind, content, changed, size = about.st_mode, "", about.st_mtime_ns, about.st_size
    if stat.S_ISLNK(kind):
        content = str(Path(path).readlink())
    elif stat.S_ISDIR(kind):
        changed = size = 0
    elif stat.S_ISREG(kind):
        content = digest(path, about)
    else:
        content = str(about.st_rdev)
    return Seen(kind, size, changed, content)


def digest(path: str, about: os.stat_result) -> str:
    if about.st_size > MOST_READ:  # sparse, or growing
        return f"{about.st_size} in {about.st_blocks}"
    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()
    except PermissionError:
        return "unreadable"


@dataclass(frozen=True)
class Touched:
    """What a command touches in peace."""

    changed: frozenset[str]
    """Paths that it makes, replaces or removes."""


def touched(before: dict[str, Seen], after: dict[str, Seen], writes: Iterable[str]) -> Touched:
    names = before.keys() | after.keys()
    return Touched(frozenset(n for n in names if before.get(n) != after.get(n)) | {*writes})


@dataclass(frozen=True)
class Case:
    """A node in a place, and what the command may do there."""

    place: str
    """Relative to the folder of the case."""
    node: str
    through: bool
    """Whether it is a folder that the user names: files of ours may go where a link there leads."""
    grows: bool
    moves: bool
    own: Touched


def changes(
    case: Case, before: dict[str, Seen], after: dict[str, Seen], said: str
) -> Iterator[str]:
    """What was changed that is not ours, or left behind without a word."""
    for name, was in before.items():
        now = after.get(name)
        if now == was or (case.grows and name == case.place):
            continue
        if not may_change(case, name, was):
            how = "removed" if now is None else "replaced" if now.mode != was.mode else "changed"
            yield f"{how} {name!r}"
    for name in after.keys() - before.keys():
        if ".building" in name or any(part in said for part in Path(name).parts if OLD in part):
            continue  # what a build that failed continues with; what cannot be removed, and is named
        if TEMPORARY.fullmatch(Path(name).name):
            yield f"left {name!r}"
        elif not may_make(case, name):
            yield f"wrote {name!r}"
    kept = {now.content for now in after.values() if stat.S_ISREG(now.mode)}
    for name, was in before.items():
        if (
            name.startswith(("pile/", "out/sorted/"))
            and stat.S_ISREG(was.mode)
            and was.content not in kept
            and not (case.grows and name == case.place)
            and not TEMPORARY.fullmatch(Path(name).name)
        ):
            yield f"LOST {name!r}"


def may_change(case: Case, name: str, was: Seen) -> bool:
    name = as_ours(case, name)
    parts = Path(name).parts
    for end in range(1, len(parts) + 1):  # of our own temporary names, folders too
        if TEMPORARY.fullmatch(parts[end - 1]):
            building = parts[end - 1].endswith(".building")  # it starts over
            link = stat.S_ISLNK(was.mode) and not building
            return end < len(parts) or stat.S_ISDIR(was.mode) or (was.replaceable and not link)
    ours = BY_CONTENT.fullmatch(name) or OF_A_RUN.fullmatch(name) or name in (SCRATCH, *DRAWN)
    inside = any(own.startswith(name + os.sep) for own in case.own.changed)
    if name in case.own.changed or ours or inside:
        return was.replaceable or stat.S_ISDIR(was.mode)
    moved = case.moves and name.startswith(("pile/", "out/sorted/"))
    return moved and (stat.S_ISREG(was.mode) or stat.S_ISDIR(was.mode))  # and not LOST


def as_ours(case: Case, name: str) -> str:
    """The path by which the command knows a file in a folder that was moved behind a link."""
    if case.node == "link-same" and case.through:
        return re.sub(r"^foreign/moved-\d+(?=/|$)", case.place, name)
    return name


def may_make(case: Case, name: str) -> bool:
    name = as_ours(case, name)
    if case.node in ("link-folder", "link-parent", "link-nothing") and case.through:
        return True
    if name in case.own.changed or name == "data" or name.startswith(GROWING):
        return True
    return any(own.startswith(name + os.sep) for own in case.own.changed)


def wrong_ending(
    code: int | None, said: str, allowed: tuple[int, ...], named: bool
) -> Iterator[str]:
    """How it ended, and what it said on stderr; `named`: whether it names a place, there or in results."""
    lines = said.rstrip("\n").split("\n")
    if "Traceback" in said:
        yield f"traceback: {lines[-1][:200]}"
    elif code is not None and code < 0:
        yield f"ended by signal {-code}"
    elif code not in allowed:
        yield f"exit code {code}: {lines[-1][:200]}"
    elif code in (1, 2):
        boxed = lines[-1].startswith("╰")
        if not lines[-1].startswith("semishot: ") and not boxed:
            yield f"exit code {code}, but says {lines[-1][:200]!r}"
        elif not named:
            yield f"does not name the place: {lines[-1][:200]!r}"
    told = [line for line in lines if not line.startswith("skipped ")]  # one for each file
    if len(told) > MOST_LINES:
        yield f"{len(told)} lines on stderr"
