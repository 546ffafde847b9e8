"""A model of sorting: plan, kill, rerun, a user's edits, faults and undo in any order, with real files.

    PYTHONPATH=tests python -m support.sorting_model --steps 10000

After every step: no content that a user had and did not delete is lost, no content is new, and what a
user has put into OUT stays. After a step that was not killed: no file has a second name, no unfinished
copy is left, and the counts of messages are true. After an undo without problems the pile is as it was,
except for the user's edits.
"""

import argparse
import errno
import hashlib
import os
import random
import re
import shutil
import stat
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from semishot.errors import InputError
from semishot.sorter.moving import move_files
from semishot.sorter.moving import plan as plans
from semishot.sorter.moving.journal import JOURNAL, Sorting, SortStep, read_journal
from semishot.sorter.moving.move_files import LOCK, Outcome, begin, complete
from semishot.sorter.moving.plan import Wanted, in_place, plan
from semishot.system.locks import Lock

NAMES = ("a/x.jpg", "b/x.jpg", "c.jpg", "C.jpg", "a/d.jpg", "e.jpg")
CLASSES = ("cat", "dog", "stranger")
OTHER_DEVICE = Path("/dev/shm")
CALLS = (
    "link",
    "unlink",
    "rename",
    "replace",
    "open",
    "mkdir",
    "rmdir",
    "symlink",
    "fsync",
    "utime",
)
"""System calls before or after which a process is killed, or a disk is full."""
KILLED = 9
FORBIDDEN = (errno.EACCES, errno.EPERM, errno.EBUSY, errno.EROFS, errno.ETIMEDOUT)
counts: Counter[str] = Counter()
"""Steps by rule."""
picks = st.integers(0, 10_000)


def regular(root: Path) -> dict[Path, bytes]:
    """Every regular file below, with its content; links are not followed."""
    found = {}
    for folder, _, names in os.walk(root):
        for name in names:
            path = Path(folder, name)
            if stat.S_ISREG(path.lstat().st_mode):
                found[path] = path.read_bytes()
    return found


def special(root: Path) -> dict[Path, tuple[int, str]]:
    """Every link and pipe below."""
    found = {}
    for folder, folders, names in os.walk(root):
        for name in (*folders, *names):
            path = Path(folder, name)
            kind = stat.S_IFMT(path.lstat().st_mode)
            if kind in (stat.S_IFLNK, stat.S_IFIFO):
                found[path] = (kind, str(path.readlink()) if kind == stat.S_IFLNK else "")
    return found


def digest_of(path: Path) -> str:
    """By other means than semishot's."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def is_own(path: Path) -> bool:
    """Whether semishot has written it, and no user."""
    return path.name in (JOURNAL, LOCK) or path.name.startswith((".semishot-", f".{JOURNAL}."))


@contextmanager
def patched(wrap: Callable[[str, Callable[..., Any]], Callable[..., Any]]) -> Iterator[None]:
    """Every system call of CALLS, wrapped."""
    before = {name: getattr(os, name) for name in CALLS}
    try:
        for name, call in before.items():
            setattr(os, name, wrap(name, call))
        yield
    finally:
        for name, call in before.items():
            setattr(os, name, call)


def killed_at(moment: int, after: bool, work: Callable[[], object]) -> bool:
    """Do the work in a process that dies at one of its system calls; whether it did."""
    child = os.fork()
    if child:
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        assert code in (0, KILLED), f"the child ended with {code}; its traceback is above"
        return code == KILLED
    left = moment

    def wrap(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any, **options: Any) -> Any:
            nonlocal left
            left -= 1
            if left == 0 and not after:
                os._exit(KILLED)
            result = call(*args, **options)
            if left == 0:
                os._exit(KILLED)
            return result

        return counted

    code = 1
    try:
        with patched(wrap):
            work()
        code = 0
    except (InputError, FileExistsError):
        code = 0  # refused, as in peace
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        os._exit(code)


def full_after(moment: int) -> Any:
    """A disk without room for another name, file or block after so many."""
    left = moment

    def wrap(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any, **options: Any) -> Any:
            nonlocal left
            makes = name in ("link", "mkdir", "symlink", "fsync")
            makes |= name == "open" and bool(args[1] & os.O_CREAT) and Path(args[0]).name != LOCK
            left -= makes
            if makes and left < 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return call(*args, **options)

        return counted

    return patched(wrap)


def forbidding(path: Path, error: int, calls: tuple[str, ...]) -> Any:
    """One file, of which some calls are not permitted."""

    def wrap(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def checked(*args: Any, **options: Any) -> Any:
            if name in calls and isinstance(args[0], str | Path) and Path(args[0]) == path:
                raise OSError(error, os.strerror(error), str(path))
            return call(*args, **options)

        return checked

    return patched(wrap)


class Sorter(RuleBasedStateMachine):
    """A pile, OUT, and everything that may happen to them."""

    def __init__(self) -> None:
        super().__init__()
        self.roots: list[Path] = []
        self.number = 0

    @initialize(across=st.booleans(), files=st.integers(1, len(NAMES)))
    def start(self, across: bool, files: int) -> None:
        here = Path(tempfile.mkdtemp(prefix="sorting-"))
        there = here
        if across and OTHER_DEVICE.is_dir():
            there = Path(tempfile.mkdtemp(prefix="sorting-", dir=OTHER_DEVICE))
        self.roots = list(dict.fromkeys((here, there)))
        self.pile, self.out = here.resolve() / "pile", there.resolve() / "out"
        self.pile.mkdir()
        self.out.mkdir()
        self.home: set[tuple[Path, bytes]] = set()
        self.alive: set[bytes] = set()
        self.ever: set[bytes] = set()
        self.theirs: dict[Path, tuple[int, str]] = {}
        self.twice: set[bytes] = set()
        self.killed = False
        with self.edit("add"):
            for name in NAMES[:files]:
                self.write(self.pile / name, self.content())

    def teardown(self) -> None:
        for root in self.roots:
            shutil.rmtree(root)

    # What a user does

    def content(self) -> bytes:
        self.number += 1
        return f"content {self.number} ".encode() * 20

    def write(self, path: Path, content: bytes) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        if not os.path.lexists(path):
            path.write_bytes(content)

    def files(self) -> dict[Path, bytes]:
        """Every file of the user, in the pile and in OUT."""
        found = {**regular(self.pile), **regular(self.out)}
        return {path: content for path, content in found.items() if not is_own(path)}

    @contextmanager
    def edit(self, what: str) -> Iterator[None]:
        """Note what an edit has changed: what is deleted by the user is not missed."""
        counts[f"edit: {what}"] += 1
        before, pile = self.files(), regular(self.pile)
        with suppress(OSError):  # not every edit is possible, such as a rename to another device
            yield
        after, pile_after = self.files(), regular(self.pile)
        lost = set(before.values()) - set(after.values())
        self.alive = (self.alive | set(after.values())) - lost
        self.ever |= set(after.values())
        added, removed = pile_after.items() - pile.items(), pile.items() - pile_after.items()
        number = Counter(after.values())
        brought = {content for _, content in added if number[content] == 1}  # by the user, from OUT
        brought |= {
            c for p, c in before.items() if p not in after and not p.is_relative_to(self.pile)
        }
        kept = {(p, c) for p, c in self.home - removed if c not in brought}
        self.home = {(p, c) for p, c in kept | added if c not in lost}
        # a twin is the user's, and a second name that a kill has left may have another name by now
        self.twice |= {content for content, files in number.items() if files > 1}
        self.theirs = {**special(self.pile), **special(self.out)}

    def pick(self, pick: int) -> Path | None:
        files = sorted(self.files())
        return files[pick % len(files)] if files else None

    @rule(name=st.sampled_from(NAMES), twin=st.booleans(), pick=picks)
    def add(self, name: str, twin: bool, pick: int) -> None:
        with self.edit("add"):
            like = self.pick(pick)
            content = like.read_bytes() if twin and like else self.content()
            self.write(self.pile / name, content)

    @rule(pick=picks)
    def delete(self, pick: int) -> None:
        if path := self.pick(pick):
            with self.edit("delete"):
                path.unlink()

    @rule(pick=picks, in_place=st.booleans())
    def replace(self, pick: int, in_place: bool) -> None:
        if path := self.pick(pick):
            with self.edit("replace"):
                if not in_place:
                    path.unlink()
                path.write_bytes(self.content())

    @rule(pick=picks, other=picks)
    def rename(self, pick: int, other: int) -> None:
        """In the pile, or between the folders of classes."""
        if path := self.pick(pick):
            with self.edit("rename or move between classes"):
                root = self.pile if path.is_relative_to(self.pile) else self.out / "sorted"
                folders = [root, *sorted(p for p in root.iterdir() if p.is_dir())]
                new = folders[other % len(folders)] / (
                    path.name if other % 2 else f"new-{path.name}"
                )
                if not os.path.lexists(new) and new.parent != self.out / "sorted":
                    path.rename(new)

    @rule(pick=picks, other=picks)
    def exchange(self, pick: int, other: int) -> None:
        one, two = self.pick(pick), self.pick(other)
        if one and two and one != two:
            with self.edit("exchange two"):
                aside = one.with_name("aside")
                one.rename(aside)
                two.rename(one)
                aside.rename(two)

    @precondition(lambda self: self.is_applied())
    @rule(pick=picks, kind=st.sampled_from(["file", "link", "pipe", "folder", "twin"]), where=picks)
    def plant(self, pick: int, kind: str, where: int) -> None:
        """Something in the place of a source, a pending target, or an earlier place."""
        sorting = read_journal(self.out)
        if sorting is None or not sorting.steps:
            return
        step = sorting.steps[pick % len(sorting.steps)]
        target = sorting.target(step)
        places = [target, step.source, sorting.earlier(step) or target]
        place = places[where % 3]
        other = step.source if place != step.source else target
        with self.edit(f"plant a {kind}"):
            if where % 2 and not place.is_dir():
                place.unlink(missing_ok=True)
            self.lay(place, kind, other)

    @rule(pick=picks, kind=st.sampled_from(["link", "pipe", "folder"]), other=picks)
    def swap(self, pick: int, kind: str, other: int) -> None:
        """A file gives way to something else."""
        path, leads = self.pick(pick), self.pick(other)
        if path and leads:
            with self.edit(f"swap for a {kind}"):
                path.unlink()
                self.lay(path, kind, leads)

    def lay(self, place: Path, kind: str, other: Path) -> None:
        if os.path.lexists(place):
            return
        place.parent.mkdir(parents=True, exist_ok=True)
        if kind == "file":
            place.write_bytes(self.content())
        elif kind == "link":
            place.symlink_to(other)
        elif kind == "pipe":
            os.mkfifo(place)
        elif kind == "folder":
            place.mkdir()
        elif other.is_file() and not other.is_symlink():
            shutil.copy(other, place)

    @rule(pick=picks, other=picks)
    def swap_folder(self, pick: int, other: int) -> None:
        """A folder of the pile or of a class becomes a link to another one."""
        roots = [self.pile, self.out / "sorted"]
        folders = sorted(p for root in roots if root.is_dir() for p in root.iterdir() if p.is_dir())
        folders = [folder for folder in folders if not folder.is_symlink()]
        if folders:
            with self.edit("swap a folder for a link"):
                folder = folders[pick % len(folders)]
                aside = folder.with_name(f"{folder.name}-aside")
                folder.rename(aside)
                leads = [aside, *(f for f in folders if f != folder)]
                folder.symlink_to(leads[other % len(leads)])

    def is_untidy(self) -> bool:
        return bool(self.roots) and (bool(special(self.pile)) or self.has_links())

    @precondition(is_untidy)
    @rule()
    def tidy(self) -> None:
        """The user removes links, pipes and empty folders, and gives folders their names back."""
        with self.edit("tidy"):
            for path in sorted({**special(self.pile), **special(self.out)}):
                if path.parent != self.out:
                    path.unlink()
            for root in (self.pile, self.out / "sorted"):
                for path in sorted(root.rglob("*"), reverse=True) if root.is_dir() else ():
                    if path.is_dir():
                        with suppress(OSError):
                            path.rmdir()
                    if path.name.endswith("-aside"):
                        back = path.with_name(path.name.removesuffix("-aside"))
                        if path.is_dir() and not os.path.lexists(back):
                            path.rename(back)

    # What semishot does

    def sort(self, how: Any, shift: int) -> tuple[Sorting, Outcome]:
        """As `classify --apply`: complete what was begun, or plan anew."""
        with Lock(self.out / LOCK):
            before = read_journal(self.out)
            if before is not None and not before.done:
                return before, complete(before)
            how = before.how if before is not None else how
            sources = {
                path: content for path, content in regular(self.pile).items() if not is_own(path)
            }
            wanted = [
                Wanted(path, self.label(path, shift), digest_of(path)) for path in sorted(sources)
            ]
            wanted += [
                Wanted(step.source, self.label(step.source, shift), step.digest)
                for step in (before.steps if before and how == "move" else ())
                if not os.path.lexists(step.source) and in_place(before, step, before.target(step))
            ]
            if not wanted and before is None:
                raise InputError("nothing to sort")
            sorting = begin(plan(self.out, how, wanted, self.pile)[0])
            return sorting, complete(sorting)

    def label(self, path: Path, shift: int) -> str:
        return CLASSES[
            (len(path.name) + ord(path.name[0]) + shift * len(path.parts)) % len(CLASSES)
        ]

    @rule(how=st.sampled_from(["move", "move", "copy", "link"]), shift=st.integers(0, 2))
    def apply(self, how: Any, shift: int) -> None:
        before = self.begin()
        try:
            sorting, outcome = self.sort(how, shift)
        except InputError as error:
            if not re.search("is a link to elsewhere|nothing to sort", str(error)):
                raise
            counts["apply: refused"] += 1
            return
        counts[f"apply: {sorting.how}{', with problems' if outcome.problems else ''}"] += 1
        self.check_sorted(sorting, outcome, before)

    @rule(shift=st.integers(0, 2))
    def apply_again(self, shift: int) -> None:
        self.apply("move", shift)

    def is_applied(self) -> bool:
        return bool(self.roots) and read_journal(self.out) is not None

    @precondition(is_applied)
    @rule()
    def undo(self) -> None:
        before = self.begin()
        assert before is not None
        undone = move_files.undo(self.out)
        counts[f"undo: {before.how}{', with problems' if undone.problems else ''}"] += 1
        self.check_undone(before, undone)

    @rule(
        what=st.sampled_from(["apply", "undo"]),
        how=st.sampled_from(["move", "move", "copy", "link"]),
        shift=st.integers(0, 2),
        moment=st.integers(1, 60),
        after=st.booleans(),
    )
    def kill(self, what: str, how: Any, shift: int, moment: int, after: bool) -> None:
        if self.begin() is None and what == "undo":
            return
        work = (
            (lambda: self.sort(how, shift))
            if what == "apply"
            else lambda: move_files.undo(self.out)
        )
        hit = killed_at(moment, after, work)
        self.killed |= hit
        counts[f"kill: {what}{'' if hit else ', too late'}"] += 1

    @rule(
        pick=picks,
        error=st.sampled_from(FORBIDDEN),
        calls=st.sampled_from([("unlink",), ("unlink", "link", "rename"), ("open",)]),
        how=st.sampled_from(["move", "copy", "link"]),
        undo=st.booleans(),
    )
    def forbid(self, pick: int, error: int, calls: Any, how: Any, undo: bool) -> None:
        """One file that cannot be deleted, or moved, or read, while the others are sorted or put back."""
        before, path = self.begin(), self.pick(pick)
        if path is None or (undo and before is None):
            return
        content = path.read_bytes()
        forbidden = forbidding(path, error, calls)
        if undo:
            assert before is not None
            with forbidden:
                undone = move_files.undo(self.out)
            counts[f"forbid one: undo {before.how}"] += 1
            self.check_undone(before, undone)
        else:
            try:
                with forbidden:
                    sorting, outcome = self.sort(how, 0)
            except InputError:
                return
            counts[f"forbid one: apply {sorting.how}"] += 1
            self.check_sorted(sorting, outcome, before)
        if calls != ("open",):
            assert path.read_bytes() == content, f"{path} was changed, and it was forbidden"

    @rule(
        room=st.integers(0, 25), how=st.sampled_from(["move", "copy", "link"]), undo=st.booleans()
    )
    def fill(self, room: int, how: Any, undo: bool) -> None:
        """A disk that gets full on the way."""
        before, failure = self.begin(), None
        if undo and before is None:
            return
        try:
            with full_after(room):
                _ = move_files.undo(self.out) if undo else self.sort(how, 1)
        except InputError:
            return
        except OSError as error:
            failure = error
        if failure is None:
            return
        assert failure.errno == errno.ENOSPC, failure
        counts[f"disk full: {'undo' if undo else 'apply'}"] += 1
        now = read_journal(self.out)
        if said := re.search(r"\((\d+) of (\d+) files (moved|copied|linked), ", str(failure)):
            assert now is not None
            assert int(said[2]) == len(now.steps)
            there = sum(self.is_there(now, step) or step.left_alone for step in now.steps)
            assert there >= int(said[1]), f"{failure}, but {there} are there"
        if not self.killed:  # what a kill has left is removed when its file is sorted
            self.check_tidy()

    def begin(self) -> Sorting | None:
        """What is undone or gone on with."""
        return read_journal(self.out)

    # What is promised

    def is_there(self, sorting: Sorting, step: SortStep, path: Path | None = None) -> bool:
        path = path or sorting.target(step)
        if any(folder.is_symlink() for folder in (path.parent, path.parent.parent)):
            return False
        if sorting.how == "link":
            return path.is_symlink() and path.readlink() == step.source
        return self.is_content(path, step.digest)

    def check_sorted(self, sorting: Sorting, outcome: Outcome, before: Sorting | None) -> None:
        steps = [step for step in sorting.steps if not step.left_alone]
        assert outcome.count + len(outcome.problems) == len(steps)
        assert outcome.left + outcome.gone == len(outcome.problems)
        now = read_journal(self.out)
        assert outcome.undoable == (now is not None)
        assert now is None or now.done
        kept = {} if now is None else {(s.source, s.digest): s for s in now.steps}
        there = [key for key, s in kept.items() if now and self.is_there(now, s)]
        done = [step for step in steps if (step.source, step.digest) in there]
        assert len(done) >= outcome.count, (outcome, len(done))
        if not outcome.problems:
            assert len(done) == len(steps)
        if sorting.how == "move" and not outcome.problems:
            for step in steps:
                behind = step.source.parent.resolve() != step.source.parent
                again = not behind and self.is_content(step.source, step.digest)
                assert not again, f"{step.source} is still there"
        self.check_tidy()
        if sorting.how == "move":
            self.check_single()

    def is_content(self, path: Path, digest: str) -> bool:
        return path.is_file() and not path.is_symlink() and digest_of(path) == digest

    def check_undone(self, before: Sorting, undone: move_files.Undone) -> None:
        now = read_journal(self.out)
        if not undone.problems:
            assert now is None
            found = regular(self.pile)
            for path, content in self.home:
                if content in self.alive:
                    assert found.get(path) == content, f"{path} is not as it was"
        assert undone.count + len(undone.problems) <= len(before.steps)
        assert undone.line().split()[0] == str(undone.count)
        self.check_tidy()
        if before.how == "move":
            self.check_single()

    def check_tidy(self) -> None:
        """No temporary names, and no file with two names."""
        self.killed = False
        if any(
            path.is_symlink()
            for root in (self.pile, self.out / "sorted")
            for path in self.folders(root)
        ):
            return  # behind links nothing is cleaned up
        names = [p for root in (self.pile, self.out) for p in root.rglob(".*") if is_own(p)]
        assert [p for p in names if p.name != JOURNAL] == [], names

    def folders(self, root: Path) -> list[Path]:
        return [root, *root.iterdir()] if root.is_dir() else [root]

    def check_single(self) -> None:
        """Every file has one name, and was not copied."""
        files = self.files()
        several = {p for p, c in files.items() if p.stat().st_nlink > 1 and c not in self.twice}
        assert not several or self.has_links(), f"second names: {several}"
        for content, number in Counter(files.values()).items():
            if content not in self.twice and not self.has_links():
                assert number == 1, f"{number} files of {content[:20]!r}"

    def has_links(self) -> bool:
        return any(
            p.is_symlink() for root in (self.pile, self.out / "sorted") for p in self.folders(root)
        )

    @invariant()
    def nothing_is_lost(self) -> None:
        if not self.roots:
            return
        found = set(self.files().values())
        assert self.alive <= found, f"lost: {self.alive - found}"

    @invariant()
    def nothing_is_changed(self) -> None:
        if not self.roots:
            return
        new = {path: content for path, content in self.files().items() if content not in self.ever}
        assert not new, f"changed: {new}"

    @invariant()
    def what_is_the_users_stays(self) -> None:
        if not self.roots:
            return
        for path, (kind, leads) in self.theirs.items():
            if kind == stat.S_IFLNK and Path(leads).is_relative_to(self.pile):
                continue  # it may be a link that semishot has made
            assert os.path.lexists(path), f"{path} is gone"
            assert stat.S_IFMT(path.lstat().st_mode) == kind, f"{path} is something else"


def plain() -> None:
    """No progress, and no waiting for a disk: this is about kills, not about power cuts."""
    move_files.track = plans.track = lambda items, *_: items  # type: ignore[assignment]
    os.fsync = lambda file: None  # type: ignore[assignment]


def options(examples: int, steps: int, **more: Any) -> settings:
    return settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        database=None,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
        **more,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Sort, kill, edit and undo in any order.")
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    asked = parser.parse_args()
    print(f"seed {asked.seed}", flush=True)
    plain()
    number, begun = asked.seed, time.monotonic()
    while counts.total() < asked.steps:
        machine = seed(number)(type("Sorter", (Sorter,), {}))
        phases = (Phase.generate, Phase.shrink)
        run_state_machine_as_test(machine, settings=options(50, 50, phases=phases))
        number += 1
    for name, number in sorted(counts.items()):
        print(f"{number:7,}  {name}")
    print(
        f"{counts.total():7,}  steps in {time.monotonic() - begun:.0f} s; nothing lost, nothing changed"
    )


if __name__ == "__main__":
    main()
