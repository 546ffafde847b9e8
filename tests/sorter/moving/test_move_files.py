"""Sorting files: nothing outside, undone exactly, changes and failures named; and what commands say."""

import errno
import hashlib
import json
import os
from pathlib import Path

import pytest

from semishot.commands.main import main
from semishot.errors import InputError
from semishot.sorter.listing import STRANGER
from semishot.sorter.moving import one_file
from semishot.sorter.moving import plan as plans
from semishot.sorter.moving.journal import read_journal, write_journal
from semishot.sorter.moving.move_files import complete, undo
from semishot.sorter.moving.plan import Wanted
from semishot.sorter.summary import Classified, named
from semishot.system.folder_names import folded, folder_names, safe_name
from support.commands import printed
from support.own_images import DRAWN, folders


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


@pytest.fixture(params=["move", "copy", "link"])
def how(request):
    return request.param


def test_files_are_sorted_and_put_back(how, tmp_path):
    wanted = make_pile(tmp_path)
    before = state(tmp_path)
    assert complete(plan(tmp_path / "out", how, wanted)).problems == []
    assert sorted_names(tmp_path) == TARGETS
    assert [path.exists() for path, _, _ in wanted] == [how != "move"] * 4
    for step, (path, _, there) in zip(read_journal(tmp_path / "out").steps, wanted, strict=True):
        target = tmp_path / "out/sorted" / step.folder / step.name
        assert digest(target) == there
        assert target.is_symlink() == (how == "link")
        assert target.stat().st_mtime == before[str(path.relative_to(tmp_path))][2] / 1e9
    assert read_journal(tmp_path / "out").done
    count, problems = undone(tmp_path / "out")
    assert (count, problems) == (4, [])
    assert state(tmp_path) == before
    assert not list((tmp_path / "out").iterdir())


# Sorted again


def test_what_changed_is_moved_from_where_it_is_and_one_undo_restores_all(how, tmp_path):
    wanted = make_pile(tmp_path)
    before = state(tmp_path)
    complete(plan(tmp_path / "out", how, wanted))
    untouched = (tmp_path / "out/sorted/cat/x.jpg").lstat().st_ino
    again = resort(tmp_path, how, CHANGED)
    assert [step.was for step in again.steps] == [None, ("cat", "x~2.jpg"), ("dog", "c.jpg"), None]
    assert complete(again).problems == []
    assert sorted_names(tmp_path) == CHANGED_TARGETS
    assert (tmp_path / "out/sorted/cat/x.jpg").lstat().st_ino == untouched
    done = read_journal(tmp_path / "out")
    assert done.done
    assert [step.was for step in done.steps] == [None] * 4
    assert [step.source for step in done.steps] == [path for path, _, _ in wanted]
    assert undone(tmp_path / "out") == (4, [])
    assert state(tmp_path) == before
    assert not (tmp_path / "out/sorted").exists()


def test_what_has_changed_is_left_and_named(tmp_path):
    wanted = make_pile(tmp_path)
    ready = plan(tmp_path / "out", "move", wanted)
    wanted[0][0].write_text("edited before the sorting")
    wanted[3][0].unlink()
    problems = complete(ready).problems
    assert len(problems) == 2
    assert "it has changed since it was read" in problems[0]
    assert wanted[0][0].read_text() == "edited before the sorting"
    (tmp_path / "out/sorted/dog/c.jpg").write_text("edited after it")
    wanted[1][0].write_text("another one in the old place")
    count, problems = undone(tmp_path / "out")
    assert count == 0
    assert any("it has changed since it was sorted" in line for line in problems)
    assert any("exists again, with different content" in line for line in problems)
    assert len(problems) == 2  # what was not sorted is not undone
    assert (tmp_path / "out/sorted/dog/c.jpg").read_text() == "edited after it"
    assert wanted[1][0].read_text() == "another one in the old place"
    assert read_journal(tmp_path / "out") is not None


def test_a_full_disk_ends_the_work_which_goes_on_later(tmp_path, monkeypatch):
    wanted = make_pile(tmp_path)
    before = state(tmp_path)
    ready = plan(tmp_path / "out", "copy", wanted)
    copied = []

    def refuse(*of):
        copied.append(of)
        if len(copied) == 3:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(one_file.shutil, "copystat", refuse)
        with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)) as caught:
            complete(ready)
    assert caught.value.filename == str(tmp_path / "out/sorted/dog/c.jpg")
    assert "(2 of 4 files copied, the others stayed where they were)" in str(caught.value)
    assert not read_journal(tmp_path / "out").done
    assert sorted_names(tmp_path) == {"cat/x.jpg", "cat/x~2.jpg"}
    assert complete(read_journal(tmp_path / "out")).problems == []
    assert sorted_names(tmp_path) == TARGETS
    assert undone(tmp_path / "out") == (4, [])
    assert {k: v[:2] for k, v in state(tmp_path).items()} == {k: v[:2] for k, v in before.items()}


@pytest.fixture
def no_hard_links(monkeypatch):
    def refuse(*names, **options):
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))

    monkeypatch.setattr(os, "link", refuse)


@pytest.mark.usefixtures("no_hard_links")
@pytest.mark.parametrize("how", ["move", "copy"])
def test_the_longest_names_are_sorted_and_put_back(how, tmp_path):
    wanted = []
    for folder in ("a", "b"):
        path = tmp_path / "pile" / folder / ("é" * 125 + "x.jpg")  # 255 bytes
        path.parent.mkdir(parents=True)
        path.write_text(folder)
        wanted.append((path, "cat", digest(path)))
    (tmp_path / "out").mkdir()
    before = state(tmp_path)
    assert complete(plan(tmp_path / "out", how, wanted)).problems == []
    assert len(sorted_names(tmp_path)) == 2
    assert undone(tmp_path / "out") == (2, [])
    assert state(tmp_path) == before


def test_a_folder_that_is_a_link_to_elsewhere_is_refused(how, tmp_path):
    wanted = make_pile(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "out/sorted").mkdir()
    (tmp_path / "out/sorted/cat").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InputError, match="is a link to elsewhere"):
        complete(plan(tmp_path / "out", how, wanted))
    assert not list((tmp_path / "elsewhere").iterdir())
    assert any("link to elsewhere" in line for line in undo(tmp_path / "out").problems)


def test_files_that_the_user_moved_are_left_where_they_are_and_named(how, tmp_path):
    wanted = make_pile(tmp_path)
    complete(plan(tmp_path / "out", how, wanted))
    sorted_ = tmp_path / "out/sorted"
    (sorted_ / "mine").mkdir()
    (sorted_ / "dog/c.jpg").rename(sorted_ / "mine/c.jpg")
    moved = [Wanted(*each) for each in wanted if how != "move"]
    sorting, notes = plans.plan(tmp_path / "out", how, moved)
    write_journal(sorting)
    assert notes == [f"{sorted_}/mine/c.jpg: you moved it there, left where it is"]
    complete(sorting)
    assert sorted_names(tmp_path) == (TARGETS - {"dog/c.jpg"}) | {"mine/c.jpg"}
    count, (problem,) = undone(tmp_path / "out")
    assert count == 3
    assert f"you moved it to {sorted_}/mine/c.jpg" in problem
    (sorted_ / "dog").mkdir()
    (sorted_ / "mine/c.jpg").rename(sorted_ / "dog/c.jpg")
    assert undone(tmp_path / "out") == (1, [])
    assert all(path.exists() for path, _, _ in wanted)


@pytest.mark.parametrize("how", ["copy", "link"])
def test_a_pile_that_was_renamed_is_not_sorted_twice(how, tmp_path):
    wanted = make_pile(tmp_path)
    complete(plan(tmp_path / "out", how, wanted))
    (tmp_path / "pile").rename(tmp_path / "new")
    again = [
        Wanted(tmp_path / "new" / path.relative_to(tmp_path / "pile"), label, content)
        for path, label, content in wanted
    ]
    sorting, notes = plans.plan(tmp_path / "out", how, again, tmp_path / "new")
    write_journal(sorting)
    assert complete(sorting).problems == notes == []
    assert sorted_names(tmp_path) == TARGETS
    assert all(path.is_file() for path in (tmp_path / "out/sorted").rglob("*.jpg"))
    assert undone(tmp_path / "out") == (4, [])


@pytest.mark.parametrize("how", ["copy", "link"])
def test_another_pile_leaves_what_was_sorted_of_a_pile_that_is_away(how, tmp_path):
    wanted = make_pile(tmp_path)
    complete(plan(tmp_path / "out", how, wanted))
    (tmp_path / "pile").rename(tmp_path / "away")
    other = tmp_path / "other/e.jpg"
    other.parent.mkdir()
    other.write_text("e")
    files = [Wanted(other, "cat", digest(other))]
    sorting, _ = plans.plan(tmp_path / "out", how, files, other.parent)
    write_journal(sorting)
    complete(sorting)
    assert len(list((tmp_path / "out/sorted").rglob("*.jpg"))) == 5
    (tmp_path / "away").rename(tmp_path / "pile")
    assert undone(tmp_path / "out") == (5, [])


def test_undo_puts_files_into_the_folder_that_is_named_below(tmp_path):
    wanted = make_pile(tmp_path)
    complete(plan(tmp_path / "out", "move", wanted))
    (tmp_path / "out").rename(tmp_path / "copied")
    assert undo(tmp_path / "copied", tmp_path / "elsewhere").count == 4
    assert (tmp_path / "elsewhere/a/x.jpg").exists()
    assert not wanted[0][0].exists()


REST = ("0" * 64, None)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"format": 1}, "format: invalid enum value 1"),
        ({"how": "eat"}, "how: invalid enum value 'eat'"),
        ({"pile": "relative"}, "pile must be an absolute path, not 'relative'"),
        ({"steps": [["a", "b"]]}, "steps[0]: expected `array` of length 5"),
        ({"steps": [["a", "b", "../../c", *REST]]}, "steps[0] leads to '../../c'"),
        ({"steps": [["../a", "b", "c", *REST]]}, "steps[0] leads to '..'"),
        ({"steps": [["a", "b", "c", "0", None]]}, "steps[0][3]"),
        ([], "expected `object`"),
    ],
)
def test_a_journal_that_leads_elsewhere_is_refused(change, reason, tmp_path):
    complete(plan(tmp_path / "out", "copy", make_pile(tmp_path)))
    path = tmp_path / "out/undo.json"
    path.write_text(json.dumps(change and {**json.loads(path.read_text()), **change}))
    with pytest.raises(InputError) as refused:
        undo(tmp_path / "out")
    assert f"{path} is damaged, or of another version" in str(refused.value)
    assert reason in str(refused.value)


@pytest.mark.parametrize(
    ("name", "safe"),
    [
        ("über Katze (2)", "über Katze (2)"),
        ("../../etc", "%2E.%2F..%2Fetc"),
        ("a\\b:c\n", "a%5Cb%3Ac%0A"),
        ("", "%"),
        ("LPT1.txt", "LPT1.txt%"),
        ("-rf", "%2Drf"),
        ("\udcff", "%ED%B3%BF"),
    ],
)
def test_a_class_name_is_one_safe_folder(name, safe):
    assert safe_name(name) == safe


def test_folders_differ_where_classes_do():
    names = ["Cat", "cat", "Stranger", "x" * 500, "x" * 501, "é", "e\u0301", "a/b", "a%2Fb"]
    folders = folder_names(names, STRANGER).values()
    assert len({folded(name) for name in folders} | {STRANGER}) == len(names) + 1
    assert max(len(name.encode()) for name in folders) < 130


@pytest.fixture
def forbid(monkeypatch):
    """A file of which some calls are refused, until it is allowed again."""
    refused = {}

    def wrap(name, call):
        def checked(path, *given, **options):
            if (Path(path), name) in refused:
                error = refused[Path(path), name]
                raise OSError(error, os.strerror(error), str(path))
            return call(path, *given, **options)

        return checked

    for name in ("link", "unlink", "rename"):
        monkeypatch.setattr(os, name, wrap(name, getattr(os, name)))

    def these(path, error=errno.EPERM, calls=("link", "unlink", "rename")):
        refused.clear()
        refused.update({(Path(path), name): error for name in calls} if path else {})

    return these


def test_a_pile_that_leads_to_the_sorted_files_loses_none(tmp_path):
    """Then source and target are one and the same file."""
    wanted = make_pile(tmp_path)
    complete(plan(tmp_path / "out", "move", wanted[:1]))
    target = tmp_path / "out/sorted/cat/x.jpg"
    content = target.read_bytes()
    (tmp_path / "pile/a").rmdir()
    (tmp_path / "pile/a").symlink_to(target.parent)
    assert complete(read_journal(tmp_path / "out")).count == 1
    assert target.read_bytes() == content
    count, (problem,) = undone(tmp_path / "out")
    assert count == 0
    assert "is a link to elsewhere now" in problem
    found = undo(tmp_path / "out", tmp_path)
    assert "it is" in found.problems[0]
    assert target.read_bytes() == content


# One file's problem


def test_where_nothing_could_be_sorted_there_is_nothing_to_undo(tmp_path):
    wanted = make_pile(tmp_path)
    sorting = plan(tmp_path / "out", "move", wanted)
    for path, _, _ in wanted:
        path.unlink()
    outcome = complete(sorting)
    assert outcome.counts() == "0 files moved, 4 are gone"
    assert not outcome.undoable
    assert not list((tmp_path / "out").iterdir())
    (line, *_) = Classified(tmp_path / "out", outcome=outcome).lines()
    assert line.endswith("was continued: 0 files moved, 4 are gone.")


def test_of_many_problems_twenty_are_named():
    lines = named("Not sorted", [f"{n}.jpg: \x1b" for n in range(1234)])
    assert len(lines) == 21
    assert lines[0] == "Not sorted: 0.jpg: \\x1b"
    assert lines[-1] == "Not sorted: 1,214 more"


# The commands


def given(root):
    labeled, pile = folders(root, shots=2, pile=2, strangers=0)
    return ["classify", "--labeled", labeled, "--unlabeled", pile, "--out", "out", *DRAWN]


def failed(capsys, *arguments):
    with pytest.raises(SystemExit) as stopped:
        main([str(argument) for argument in arguments])
    assert stopped.value.code == 1
    return capsys.readouterr()


def test_a_command_says_what_is_where_and_tries_again(capsys, tmp_path, monkeypatch, forbid):
    monkeypatch.chdir(tmp_path)
    command = given(tmp_path)
    forbidden = tmp_path / "pile/more/cross-0.png"
    forbid(forbidden)
    said = failed(capsys, *command, "--apply", "move")
    where = "to out/sorted: 5 files moved, 1 stayed where it was; `semishot undo out` undoes it."
    assert where in said.out
    assert f"Not sorted: {forbidden}: Operation not permitted" in said.out
    line = "semishot: 1 of 6 files could not be sorted (5 files moved, 1 stayed where it was); the same "
    assert said.err.splitlines()[-1] == f"{line}command tries again"
    assert forbidden.exists()
    again = failed(capsys, *command, "--apply", "move")
    assert (
        "sorted again to out/sorted: 5 files in their folders, 1 stayed where it was" in again.out
    )
    forbid(None)
    assert "6 files in their folders;" in printed(capsys, *command, "--apply", "move")
    assert printed(capsys, "undo", "out") == "6 files moved back\n"
