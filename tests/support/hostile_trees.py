"""Every kind of node in every place where a command looks, and all commands against it.

A case is a node of `hostile_nodes` in a place of `hostile_places`, and a command that looks there. It runs
in a child that was forked from an interpreter with everything imported, in a fresh copy of a small world,
without root's powers unless it takes them to reach what a link leads to. It must end by itself within
SECONDS and MOST_BYTES, with exit code 0, 1 or 2, without a traceback, with a few lines that name a place;
whatever is not its own must be as before, and nothing half-written may be left: see `hostile_checks`.

    python -m support.hostile_trees --only PLACE:NODE:COMMAND
"""

import argparse
import contextlib
import importlib
import multiprocessing
import os
import random
import shutil
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from support import chaos, hostile_checks, hostile_worlds
from support.hostile_child import MOST_BYTES, SECONDS, Watched, confine, converse, growing
from support.hostile_nodes import NODES, Scene, fill_foreign, mutable_again
from support.hostile_places import PLACES, RUNS, named

STALLED = 4.0
"""Seconds after which a read is given up."""
SERVED = (143,)
"""The exit code of a server that was ended."""
SLOW_SHARE = 6
"""One of so many cases of a slow command is run."""
EXPECTED = {
    "file": ("file", "any"),
    "picture": ("file", "any", "picture"),
    "folder": ("folder", "any"),
}


@dataclass(frozen=True)
class Combination:
    place: str
    node: str
    command: str

    def __str__(self) -> str:
        return f"{self.place}:{self.node}:{self.command}"


@dataclass(frozen=True)
class Found:
    case: Combination
    problems: tuple[str, ...]
    seconds: float
    bytes: int
    code: int | None
    said: str


def combinations() -> list[Combination]:
    """All of them, in the order of the tables."""
    found = []
    for place, (expected, commands) in PLACES.items():
        for name, node in NODES.items():
            if node.on in EXPECTED[expected] and (os.geteuid() == 0 or not node.root_only):
                found += [Combination(place, name, command) for command in commands]
    return found


def chosen(count: int, seed: int, commands: Collection[str] = RUNS) -> list[Combination]:
    """So many, drawn by the seed: as many of each place and command as possible, slow commands seldom."""
    draw = random.Random(seed)
    groups: dict[tuple[str, str], list[Combination]] = {}
    for case in combinations():
        if case.command not in commands:
            continue
        groups.setdefault((case.place, case.command), []).append(case)
    for (_, command), group in groups.items():
        draw.shuffle(group)
        if RUNS[command].slow:
            del group[max(1, len(group) // SLOW_SHARE) :]
    held = list(groups.values())
    draw.shuffle(held)
    return [case for turn in zip_longest(*held) for case in turn if case is not None][:count]


class Lane:
    """One case at a time, always in the same folder."""

    def __init__(self, folder: Path) -> None:
        self.case, self.worlds = folder / "case", folder / "worlds"
        self.shared = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.own: dict[str, hostile_checks.Touched] = {}

    def in_peace(self, command: str, folder: Path) -> None:
        code, said, _ = self.run(command, powers=False)
        allowed = SERVED if RUNS[command].served else (0,)
        assert code in allowed, f"{command}: exit code {code}:\n{said}"

    def touched(self, command: str) -> hostile_checks.Touched:
        """What the command touches where nothing is hostile."""
        if command not in self.own:
            with self.fresh(command):
                before = hostile_checks.snapshot(self.case)
                self.in_peace(command, self.case)
                after = hostile_checks.snapshot(self.case)
                self.own[command] = hostile_checks.touched(before, after, RUNS[command].writes)
        return self.own[command]

    @contextlib.contextmanager
    def fresh(self, command: str) -> Iterator[None]:
        world = self.worlds / RUNS[command].world
        if not world.exists():
            hostile_worlds.build(world.name, self.case, self.worlds, self.in_peace)
        shutil.copytree(world, self.case, symlinks=True)
        try:
            yield
        finally:
            remove_all(self.case)

    def play(self, combination: Combination) -> Found:
        own = self.touched(combination.command)
        node, command = NODES[combination.node], combination.command
        with self.fresh(command):
            foreign = self.case / "foreign"
            fill_foreign(foreign)
            place = hostile_worlds.resolved(self.case, combination.place)
            try:
                node.lay(place, Scene(self.case, foreign, self.shared))
                before = hostile_checks.snapshot(self.case)
                begun = time.monotonic()
                with growing(place if node.grows else None):
                    code, said, taken = self.run(command, node.powers)
                seconds = time.monotonic() - begun
                after = hostile_checks.snapshot(self.case)
            finally:
                mutable_again(place)
            relative = str(place.relative_to(self.case))
            through = PLACES[combination.place][0] == "folder" and named(combination.place, command)
            case = hostile_checks.Case(
                relative, combination.node, through, node.grows, RUNS[command].moves, own
            )
            problems = list(self.limits(code, seconds, taken))
            if not problems:
                allowed = (0, 1, 2, *(SERVED if RUNS[command].served else ()))
                named_in = said + Path(f"{self.case}.out").read_text(errors="backslashreplace")
                known = any(word in named_in for word in words(place))
                problems += hostile_checks.wrong_ending(code, said, allowed, known)
            changed = hostile_checks.changes(case, before, after)
            problems += [
                c for c in changed if code is not None or not c.startswith(("left ", "wrote "))
            ]
        return Found(combination, tuple(problems), seconds, taken, code, said[-9000:])

    def limits(self, code: int | None, seconds: float, taken: int) -> Iterator[str]:
        if taken > MOST_BYTES:
            yield f"takes more than {MOST_BYTES >> 20} MB of memory"
        elif code is None:
            yield f"does not end within {SECONDS:.0f} s"

    def run(self, command: str, powers: bool) -> tuple[int | None, str, int]:
        """Exit code, None if it had to be killed; what it said to stderr; the memory it took."""
        words = chaos.Command(RUNS[command].arguments)
        for ending in ("out", "err"):  # its permissions may be those of an earlier one
            Path(f"{self.case}.{ending}").unlink(missing_ok=True)
        child = chaos.start(words, self.shared, self.case, lambda: confine(self.case, powers))
        problems: list[str] = []
        watched = Watched(child)
        if RUNS[command].served:
            talk = threading.Thread(target=converse, args=(self.case, watched, problems))
            talk.start()
            code = watched.until_ended()
            talk.join(SECONDS)
        else:
            code = watched.until_ended()
        said = Path(f"{self.case}.err").read_text(errors="backslashreplace")
        return code, "".join(problems) + said, watched.taken


def words(place: Path) -> set[str]:
    """One of these stands in a message that names a place: a folder or file that the user knows."""
    return {place.name, *(known.partition("/")[0] for known in PLACES if known[0] != ".")}


def remove_all(folder: Path) -> None:
    """However deep, and whatever its permissions."""

    def allow(remove: Callable[..., object], name: str, error: object) -> None:
        path = Path(name)
        path.parent.chmod(0o700)
        if path.is_dir() and not path.is_symlink():
            path.chmod(0o700)
            shutil.rmtree(path, ignore_errors=True)
        else:
            remove(path)

    sys.setrecursionlimit(10_000)
    shutil.rmtree(folder, onerror=allow)


LANE: list[Lane] = []


def play_in_a_lane(work: Path, combination: Combination) -> Found:
    """In a process of the pool, which has a folder of its own."""
    if not LANE:
        LANE.append(Lane(work / f"lane-{os.getpid()}"))
    try:
        return LANE[0].play(combination)
    except (OSError, AssertionError) as error:  # of this generator, not of the command
        return Found(combination, (f"could not be played: {error!r}",), 0.0, 0, None, "")


def import_all() -> None:
    """What commands import when they run."""
    chaos.import_all()
    deadlines = importlib.import_module("semishot.system.deadlines")
    deadlines.READ_SECONDS = STALLED  # or each of them would wait for a minute
    import matplotlib.pyplot as plt  # noqa: F401

    from semishot.label import server  # noqa: F401
    from semishot.report import gallery, pictures, plots  # noqa: F401
    from semishot.sorter import predict  # noqa: F401


def played(cases: list[Combination], work: Path, lanes: int) -> Iterator[Found]:
    context = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(lanes, mp_context=context) as pool:
        for done in as_completed([pool.submit(play_in_a_lane, work, case) for case in cases]):
            yield done.result()


def main() -> None:
    parser = argparse.ArgumentParser(description="Hostile nodes in every place; all commands.")
    parser.add_argument("--cases", type=int, default=600, help="drawn from all combinations")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--lanes", type=int, default=os.cpu_count() or 1, help="cases at a time")
    parser.add_argument("--only", help="PLACE:NODE:COMMAND; any of the three may be empty")
    parser.add_argument("--commands", nargs="+", choices=RUNS, default=[*RUNS], help="these alone")
    parser.add_argument("--count", action="store_true", help="count combinations, run none")
    options = parser.parse_args()
    if options.only:
        wanted = options.only.split(":")
        cases = [
            case
            for case in combinations()
            if all(w in ("", g) for w, g in zip(wanted, str(case).split(":"), strict=True))
        ]
    else:
        cases = chosen(options.cases, options.seed, options.commands)
    print(
        f"{len(cases):,} of {len(combinations()):,} combinations, seed {options.seed}", flush=True
    )
    if options.count:
        return
    import_all()
    work = Path(tempfile.mkdtemp(prefix="hostile-"))
    begun, failed, codes, worst = time.monotonic(), 0, Counter[str](), (0, "")
    counted: dict[str, Counter[str]] = {"place": Counter(), "node": Counter(), "command": Counter()}
    for found in played(cases, work, options.lanes):
        case = found.case
        for kind, value in (("place", case.place), ("node", case.node), ("command", case.command)):
            counted[kind][value] += 1
        codes[str(found.code)] += 1
        worst = max(worst, (found.bytes, str(case)))
        for problem in found.problems:
            print(f"FOUND {case}: {problem}", flush=True)
        if options.only:
            print(f"{case}: exit code {found.code}, {found.seconds:.1f} s, {found.bytes >> 20} MB")
            print(found.said, end="")
        failed += bool(found.problems)
        if sum(codes.values()) % 200 == 0:
            print(f"{sum(codes.values()):,} played, {failed:,} failed", file=sys.stderr, flush=True)
    for kind, counter in counted.items():
        print(f"by {kind}:", ", ".join(f"{name} {n}" for name, n in counter.items()))
    print("exit codes:", ", ".join(f"{code}: {n:,}" for code, n in sorted(codes.items())))
    print(f"most memory: {worst[0] >> 20} MB, {worst[1]}")
    print(f"{failed:,} of {len(cases):,} failed, in {time.monotonic() - begun:.0f} s")
    remove_all(work)
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
