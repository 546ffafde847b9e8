"""A pile of four files, sorted by labels that are given: for the tests of moving files."""

import hashlib
import os

from semishot.sorter.listing import STRANGER
from semishot.sorter.moving import plan as plans
from semishot.sorter.moving.journal import read_journal, write_journal
from semishot.sorter.moving.move_files import undo
from semishot.sorter.moving.plan import Wanted


def plan(out, how, wanted):
    """(path, label, digest) of each file -> the sorting, written as a journal."""
    sorting, _ = plans.plan(out, how, [Wanted(*each) for each in wanted])
    write_journal(sorting)
    return sorting


def undone(out):
    result = undo(out)
    return result.count, result.problems


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def make_pile(root):
    """Four files, two of one name: (path, class or stranger, digest)."""
    wanted = []
    for name, label in {
        "a/x.jpg": "cat",
        "b/x.jpg": "cat",
        "c.jpg": "dog",
        "d.jpg": STRANGER,
    }.items():
        path = root / "pile" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(name.encode() * 50)
        os.utime(path, (1_000_000_000, 1_000_000_000 + len(wanted)))
        wanted.append((path, label, digest(path)))
    (root / "out").mkdir()
    return wanted


def state(root):
    """Every file below: content, time, and whether it is a link."""
    return {
        str(path.relative_to(root)): (path.is_symlink(), path.read_bytes(), path.stat().st_mtime_ns)
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


def sorted_names(root):
    return {str(p.relative_to(root / "out/sorted")) for p in (root / "out/sorted").rglob("*.jpg")}


TARGETS = {"cat/x.jpg", "cat/x~2.jpg", "dog/c.jpg", "stranger/d.jpg"}


def resort(root, how, labels):
    """Plan and complete another sorting; `labels` are those of the four files."""
    before = read_journal(root / "out")
    wanted = [(s.source, label, s.digest) for s, label in zip(before.steps, labels, strict=True)]
    return plan(root / "out", how, wanted)


CHANGED = ("cat", "dog", STRANGER, STRANGER)
CHANGED_TARGETS = {"cat/x.jpg", "dog/x.jpg", "stranger/c.jpg", "stranger/d.jpg"}
