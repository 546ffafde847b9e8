"""A model of sorting: plan, kill, rerun, a user's edits, faults and undo in any order, with real files.

After every step: no content that a user had and did not delete is lost, and no content is new. After a
step that was not killed: no file has a second name, no unfinished copy is left, and the counts of messages
are true. After an undo without problems the pile is as it was, except for the user's edits.
"""

import errno
import hashlib
import os
import shutil
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
)

from semishot.errors import InputError
from semishot.sorter.moving import move_files
from semishot.sorter.moving.journal import (
    JOURNAL,
    Sorting,
    SortStep,
    moved_files,
    read_journal,
    write_journal,
)
from semishot.sorter.moving.move_files import LOCK, Outcome, Wanted, complete, plan
from semishot.system.locks import Lock

NAMES = ("a/x.jpg", "b/x.jpg", "c.jpg", "C.jpg", "a/d.jpg", "e.jpg")
CLASSES = ("cat", "dog", "stranger")
OTHER_DEVICE = Path("/dev/shm")
CALLS = ("link", "unlink", "rename", "replace", "open", "mkdir", "rmdir", "symlink", "fsync")
"""System calls before or after which a process is killed, or a disk is full."""
KILLED = 9
counts: Counter[str] = Counter()
"""Steps by rule."""
picks = st.integers(0, 10_000)
ways = st.sampled_from(["move", "move", "copy", "link"])


def regular(root: Path) -> dict[Path, bytes]:
    """Every regular file below, with its content; links are not followed."""
    paths = [Path(folder, name) for folder, _, names in os.walk(root) for name in names]
    return {p: p.read_bytes() for p in paths if p.is_file() and not p.is_symlink()}


def digest_of(path: Path) -> str:
    """By other means than semishot's."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def is_own(path: Path) -> bool:
    """Whether semishot has written it, and no user."""
    return path.name in (JOURNAL, LOCK) or path.name.startswith((".semishot-", f".{JOURNAL}."))


@contextmanager
def watched(look: Callable[[str, Any, bool], None]) -> Iterator[None]:
    """Look at every system call of CALLS: its name and first arguments, before it and after it."""

    def wrap(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def looked_at(*args: Any, **options: Any) -> Any:
            look(name, args, False)
            result = call(*args, **options)
            look(name, args, True)
            return result

        return looked_at

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
    if child := os.fork():
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        assert code in (0, KILLED), f"the child ended with {code}; its traceback is above"
        return code == KILLED
    left, code = moment, 1

    def look(name: str, args: Any, is_after: bool) -> None:
        nonlocal left
        left -= is_after == after
        if left == 0:
            os._exit(KILLED)

    try:
        with watched(look):
            work()
        code = 0
    except (InputError, FileExistsError):
        code = 0  # refused, as in peace
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def full_after(moment: int) -> Any:
    """A disk without room for another name, file or block after so many."""
    left = moment

    def look(name: str, args: Any, is_after: bool) -> None:
        nonlocal left
        makes = name in ("link", "mkdir", "symlink", "fsync")
        makes |= name == "open" and bool(args[1] & os.O_CREAT) and Path(args[0]).name != LOCK
        left -= makes and not is_after
        if makes and not is_after and left < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    return watched(look)


class Sorter(RuleBasedStateMachine):
    """A pile, OUT, and everything that may happen to them."""

    def __init__(self) -> None:
        super().__init__()
        self.roots: list[Path] = []
        self.number = 0

    @initialize(across=st.booleans(), files=st.integers(1, len(NAMES)))
    def start(self, across: bool, files: int) -> None:
        here = there = Path(tempfile.mkdtemp(prefix="sorting-"))
        if across and OTHER_DEVICE.is_dir():
            there = Path(tempfile.mkdtemp(prefix="sorting-", dir=OTHER_DEVICE))
        self.roots = list(dict.fromkeys((here, there)))
        self.pile, self.out = here.resolve() / "pile", there.resolve() / "out"
        self.pile.mkdir()
        self.out.mkdir()
        self.home: set[tuple[Path, bytes]] = set()
        self.alive: set[bytes] = set()
        self.ever: set[bytes] = set()
        self.twice: set[bytes] = set()
        self.killed = False
        with self.edit("add"):
            for name in NAMES[:files]:
                self.lay(self.pile / name, "file")

    def teardown(self) -> None:
        for root in self.roots:
            shutil.rmtree(root)

    # What a user does

    def content(self) -> bytes:
        self.number += 1
        return f"content {self.number} ".encode() * 20

    def files(self) -> dict[Path, bytes]:
        """Every file of the user, in the pile and in OUT."""
        every = {**regular(self.pile), **regular(self.out)}
        return {path: content for path, content in every.items() if not is_own(path)}

    @contextmanager
    def edit(self, what: str) -> Iterator[None]:
        """Note what an edit has changed: what is deleted or moved by the user is not missed."""
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
        theirs = {content for _, content in added if number[content] == 1}  # brought from OUT
        theirs |= {
            c for p, c in before.items() if p not in after and not p.is_relative_to(self.pile)
        }
        kept = {(p, c) for p, c in self.home - removed if c not in theirs}
        self.home = {(p, c) for p, c in kept | added if c not in lost}
        # a twin is the user's, and a second name that a kill has left may have another name by now
        self.twice |= {content for content, files in number.items() if files > 1}

    def pick(self, pick: int) -> Path | None:
        files = sorted(self.files())
        return files[pick % len(files)] if files else None

    def lay(self, path: Path, kind: str, other: Path | None = None) -> None:
        if os.path.lexists(path):
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        if kind == "file" or other is None:
            path.write_bytes(self.content())
        elif kind == "link":
            path.symlink_to(other)
        elif kind == "folder":
            path.mkdir()
        elif other.is_file() and not other.is_symlink():
            shutil.copy(other, path)

    @rule(name=st.sampled_from(NAMES), kind=st.sampled_from(["file", "twin"]), pick=picks)
    def add(self, name: str, kind: str, pick: int) -> None:
        with self.edit("add"):
            self.lay(self.pile / name, kind, self.pick(pick))

    @rule(
        pick=picks,
        what=st.sampled_from(["delete", "replace", "write", "link", "folder"]),
        other=picks,
    )
    def change(self, pick: int, what: str, other: int) -> None:
        path, leads = self.pick(pick), self.pick(other)
        if path and leads:
            with self.edit(what):
                if what != "write":
                    path.unlink()
                if what in ("replace", "write"):
                    path.write_bytes(self.content())
                elif what != "delete":
                    self.lay(path, what, leads)

    @rule(pick=picks, other=picks)
    def rename(self, pick: int, other: int) -> None:
        """In the pile, or between the folders of classes."""
        if path := self.pick(pick):
            with self.edit("rename"):
                root = self.pile if path.is_relative_to(self.pile) else self.out / "sorted"
                folders = [root, *sorted(p for p in root.iterdir() if p.is_dir())]
                name = path.name if other % 2 else f"new-{path.name}"
                new = folders[other % len(folders)] / name
                if not os.path.lexists(new) and new.parent != self.out / "sorted":
                    path.rename(new)

    @rule(pick=picks, kind=st.sampled_from(["file", "link", "folder", "twin"]), where=picks)
    def plant(self, pick: int, kind: str, where: int) -> None:
        """Something in the place of a source, a pending target, or an earlier place."""
        sorting = read_journal(self.out)
        if sorting is not None:
            step = sorting.steps[pick % len(sorting.steps)]
            path, target = step[where % 2], step.target
            with self.edit(f"plant a {kind}"):
                if where % 3 and not path.is_dir():
                    path.unlink(missing_ok=True)
                self.lay(path, kind, step.source if path != step.source else target)

    # What semishot does

    def sort(self, how: Any, shift: int) -> tuple[Sorting, Outcome]:
        """As `classify --apply`: complete what was begun, or plan anew."""
        with Lock(self.out / LOCK):
            before = read_journal(self.out)
            if before is not None and not before.done:
                return before, complete(before)
            how = before.how if before is not None else how
            sources = [(p, digest_of(p)) for p in sorted(regular(self.pile)) if not is_own(p)]
            sources += [(home, digest_of(now)) for home, now in moved_files(self.out).items()]
            if not sources and before is None:
                raise InputError("nothing to sort")
            labels = [CLASSES[(len(p.name) + shift * len(p.parts)) % 3] for p, _ in sources]
            wanted = [Wanted(p, label, d) for (p, d), label in zip(sources, labels, strict=True)]
            sorting, _ = plan(self.out, how, wanted, self.pile)
            write_journal(sorting)
            return sorting, complete(sorting)

    def work(self, what: str, how: Any, shift: int, check: bool = True) -> None:
        """Sort or undo; what is refused or nothing is no fault."""
        before = read_journal(self.out)
        try:
            if what == "apply":
                sorting, outcome = self.sort(how, shift)
            elif before is not None:
                undone = move_files.undo(self.out)
        except InputError as error:
            if "nothing to sort" in str(error):
                return
            raise
        if check and what == "apply":
            counts[f"apply: {sorting.how}{', with problems' if outcome.problems else ''}"] += 1
            self.check_sorted(sorting, outcome)
        elif check and before is not None:
            counts[f"undo: {before.how}{', with problems' if undone.problems else ''}"] += 1
            self.check_undone(before, undone)

    @rule(what=st.sampled_from(["apply", "apply", "undo"]), how=ways, shift=st.integers(0, 2))
    def act(self, what: str, how: Any, shift: int) -> None:
        self.work(what, how, shift)

    @rule(
        what=st.sampled_from(["apply", "undo"]),
        how=ways,
        shift=st.integers(0, 2),
        moment=st.integers(1, 60),
        after=st.booleans(),
    )
    def kill(self, what: str, how: Any, shift: int, moment: int, after: bool) -> None:
        hit = killed_at(moment, after, lambda: self.work(what, how, shift, check=False))
        self.killed |= hit
        counts[f"kill: {what}{'' if hit else ', too late'}"] += 1

    @rule(room=st.integers(0, 25), how=ways, what=st.sampled_from(["apply", "undo"]))
    def fill(self, room: int, how: Any, what: str) -> None:
        """A disk that gets full on the way."""
        try:
            with full_after(room):
                self.work(what, how, 1, check=False)
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            counts[f"disk full: {what}"] += 1
        if not self.killed:  # what a kill has left is removed when its file is sorted
            self.check_tidy()

    # What is promised

    def is_there(self, sorting: Sorting, step: SortStep) -> bool:
        path = step.target
        if sorting.how == "link":
            return path.is_symlink() and path.readlink() == step.source
        return path.is_file() and not path.is_symlink() and digest_of(path) == step.digest

    def check_sorted(self, sorting: Sorting, outcome: Outcome) -> None:
        steps = [step for step in sorting.steps if step.state == "todo"]
        assert outcome.count + len(outcome.problems) == len(steps)
        now = read_journal(self.out)
        assert now is None or now.done
        there = {(s.source, s.digest) for s in (now.steps if now else ()) if self.is_there(now, s)}
        done = sum((step.source, step.digest) in there for step in steps)
        assert done >= outcome.count, (outcome, done)
        self.check_tidy()
        if sorting.how == "move":
            self.check_single()

    def check_undone(self, before: Sorting, undone: Outcome) -> None:
        if not undone.problems:
            assert read_journal(self.out) is None
            pile = regular(self.pile)
            for path, content in self.home:
                assert content not in self.alive or pile.get(path) == content, f"{path} is missing"
        assert undone.count + len(undone.problems) <= len(before.steps)
        self.check_tidy()
        if before.how == "move":
            self.check_single()

    def check_tidy(self) -> None:
        """No temporary names."""
        self.killed = False
        own = [p for root in (self.pile, self.out) for p in root.rglob(".*") if is_own(p)]
        assert [p for p in own if p.name != JOURNAL] == [], own

    def check_single(self) -> None:
        """Every file has one name, and was not copied."""
        for content, number in Counter(self.files().values()).items():
            if content not in self.twice:
                assert number == 1, f"{number} files of {content[:20]!r}"

    @invariant()
    def nothing_is_lost_or_changed(self) -> None:
        if self.roots:
            now = set(self.files().values())
            assert self.alive <= now, f"lost: {self.alive - now}"
            assert now <= self.ever, f"changed: {now - self.ever}"


def options(examples: int, steps: int, **more: Any) -> settings:
    silent = {"deadline": None, "database": None, "report_multiple_bugs": False}
    checks = list(HealthCheck)
    return settings(
        max_examples=examples,
        stateful_step_count=steps,
        suppress_health_check=checks,
        **silent,
        **more,
    )
