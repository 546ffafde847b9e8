"""Sorting files: nothing outside, undone exactly, changes and failures named; and what commands say."""

import errno
import hashlib
import json
import os
import shutil

import pytest

from semishot.commands.main import main
from semishot.errors import InputError
from semishot.sorter.listing import STRANGER
from semishot.sorter.moving import one_file
from semishot.sorter.moving.journal import read_journal, write_journal
from semishot.sorter.moving.move_files import Wanted, complete, plan, undo
from semishot.sorter.summary import Classified, named
from semishot.system.folder_names import folded, folder_names, safe_name
from support.commands import printed
from support.own_images import DRAWN, folders

PILE = {"a/x.jpg": "cat", "b/x.jpg": "cat", "c.jpg": "dog", "d.jpg": STRANGER}
TARGETS = {"cat/x.jpg", "cat/x~2.jpg", "dog/c.jpg", "stranger/d.jpg"}


@pytest.fixture
def out(tmp_path):
    """Beside a pile of four files, two of one name."""
    for number, name in enumerate(PILE):
        path = tmp_path / "pile" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(name.encode() * 50)
        os.utime(path, (1_000_000_000, 1_000_000_000 + number))
    (tmp_path / "out").mkdir()
    return tmp_path / "out"


@pytest.fixture(params=["move", "copy", "link"])
def how(request):
    return request.param


def planned(out, how, pile=None, labels=()):
    """A sorting of the pile, written as a journal, and notes; `labels` are those of its files."""
    pile, classes = (
        pile or out.parent / "pile",
        dict(zip(PILE, labels, strict=True) if labels else PILE),
    )
    wanted = []
    for name, label in classes.items():
        digest = hashlib.sha256(name.encode() * 50).hexdigest()
        wanted.append(Wanted(pile / name, label, digest))
    sorting, notes = plan(out, how, wanted, pile)
    write_journal(sorting)
    return sorting, notes


def sort(out, *given, **options):
    return complete(planned(out, *given, **options)[0])


def undone(out, below=None):
    result = undo(out, below)
    return result.count, result.problems


def state(root):
    """Every file below: content, time, and whether it is a link."""
    return {
        str(path.relative_to(root)): (path.is_symlink(), path.read_bytes(), path.stat().st_mtime_ns)
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


def sorted_names(out):
    return {str(path.relative_to(out / "sorted")) for path in (out / "sorted").rglob("*.jpg")}


def test_files_are_sorted_and_put_back(how, out):
    before = state(out.parent)
    assert sort(out, how).problems == []
    assert sorted_names(out) == TARGETS
    for target, source in read_journal(out).targets.items():
        assert source.exists() == (how != "move")
        assert target.is_symlink() == (how == "link")
        assert (
            state(target.parent)[target.name][1:] == before[str(source.relative_to(out.parent))][1:]
        )
    assert read_journal(out).done
    assert undone(out) == (4, [])
    assert state(out.parent) == before
    assert not list(out.iterdir())


# Sorted again


def test_what_changed_is_sorted_anew_and_one_undo_restores_all(how, out):
    before = state(out.parent)
    sort(out, how)
    untouched = (out / "sorted/cat/x.jpg").lstat()
    assert sort(out, how, labels=("cat", "dog", STRANGER, STRANGER)).counts(again=True) == (
        "4 files in their folders"
    )
    assert sorted_names(out) == {"cat/x.jpg", "dog/x.jpg", "stranger/c.jpg", "stranger/d.jpg"}
    assert (out / "sorted/cat/x.jpg").lstat() == untouched
    assert sort(out, how, labels=("cat", "bird", "cat", "bird")).problems == []
    assert not (out / "sorted/dog").exists()
    assert undone(out) == (4, [])
    assert state(out.parent) == before


def test_what_is_sorted_again_goes_from_folder_to_folder_without_its_pile(out):
    """Which may have been on a card that is not in the machine any more."""
    sort(out, "move")
    shutil.rmtree(out.parent / "pile")
    assert sort(out, "move", labels=("dog", "cat", "cat", STRANGER)).problems == []
    assert sorted_names(out) == {"dog/x.jpg", "cat/x~2.jpg", "cat/c.jpg", "stranger/d.jpg"}
    assert not (out.parent / "pile").exists()
    assert undone(out) == (4, [])
    assert (out.parent / "pile/a/x.jpg").exists()


def test_what_has_changed_is_left_and_named(out):
    pile = out.parent / "pile"
    ready, _ = planned(out, "move")
    (pile / "a/x.jpg").write_text("edited before the sorting")
    (pile / "d.jpg").unlink()
    (edited, gone) = complete(ready).problems
    assert edited == f"{pile}/a/x.jpg: it has changed since it was read"
    assert gone.startswith(f"{pile}/d.jpg: ")
    assert (pile / "a/x.jpg").read_text() == "edited before the sorting"
    (out / "sorted/dog/c.jpg").write_text("edited after it")
    (pile / "b/x.jpg").write_text("another one in the old place")
    count, problems = undone(out)
    assert count == 0  # and what was not sorted is not undone
    assert problems == [
        f"{pile}/b/x.jpg: {pile}/b/x.jpg exists and is another file",
        f"{pile}/c.jpg: {out}/sorted/dog/c.jpg is gone, or has changed since it was sorted",
    ]
    assert (out / "sorted/dog/c.jpg").read_text() == "edited after it"
    assert (pile / "b/x.jpg").read_text() == "another one in the old place"
    assert read_journal(out) is not None


def test_a_full_disk_ends_the_work_which_goes_on_later(out, monkeypatch):
    before = state(out.parent)
    copied = []

    def refuse(*of):
        copied.append(of)
        if len(copied) == 3:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(one_file.shutil, "copystat", refuse)
        with pytest.raises(OSError, match=r"2 of 4 files copied") as caught:
            sort(out, "copy")
    assert caught.value.errno == errno.ENOSPC
    assert not read_journal(out).done
    assert sorted_names(out) == {"cat/x.jpg", "cat/x~2.jpg"}
    assert complete(read_journal(out)).problems == []
    assert sorted_names(out) == TARGETS
    assert undone(out) == (4, [])
    assert {k: v[:2] for k, v in state(out.parent).items()} == {k: v[:2] for k, v in before.items()}


@pytest.mark.parametrize("how", ["move", "copy"])
def test_without_hard_links_the_longest_names_are_sorted_and_put_back(how, tmp_path, monkeypatch):
    def refuse(*names, **options):
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))

    monkeypatch.setattr(os, "link", refuse)
    path = tmp_path / "pile" / ("é" * 125 + "x.jpg")  # 255 bytes
    path.parent.mkdir()
    path.write_text("a")
    before = state(tmp_path)
    out = tmp_path / "out"
    out.mkdir()
    sorting, _ = plan(out, how, [Wanted(path, "cat", hashlib.sha256(b"a").hexdigest())])
    assert complete(sorting).problems == []
    assert sorted_names(out) == {f"cat/{path.name}"}
    assert undone(out) == (1, [])
    assert state(tmp_path) == before


def test_a_folder_that_is_a_link_to_elsewhere_is_refused(how, out):
    elsewhere = out.parent / "elsewhere"
    elsewhere.mkdir()
    (out / "sorted").mkdir()
    (out / "sorted/cat").symlink_to(elsewhere)
    problems = sort(out, how).problems
    assert len(problems) == 2
    assert f"{out}/sorted/cat, is a link to elsewhere now" in problems[0]
    assert not list(elsewhere.iterdir())
    assert sorted_names(out) == {"dog/c.jpg", "stranger/d.jpg"}


def test_files_that_the_user_moved_are_left_where_they_are_and_named(how, out):
    sort(out, how)
    here = out / "sorted"
    (here / "mine").mkdir()
    (here / "dog/c.jpg").rename(here / "mine/c.jpg")
    sorting, notes = planned(out, how, labels=("cat", "cat", "cat", STRANGER))
    assert notes == [f"{here}/mine/c.jpg: you moved it there, left where it is"]
    assert complete(sorting).problems == []
    assert sorted_names(out) == (TARGETS - {"dog/c.jpg"}) | {"mine/c.jpg"}
    count, (problem,) = undone(out)
    assert count == 3
    assert f"you moved it to {here}/mine/c.jpg" in problem
    (here / "dog").mkdir()
    (here / "mine/c.jpg").rename(here / "dog/c.jpg")
    assert undone(out) == (1, [])
    assert all((out.parent / "pile" / name).exists() for name in PILE)


@pytest.mark.parametrize("how", ["copy", "link"])
def test_a_pile_that_was_renamed_is_not_sorted_twice(how, out):
    sort(out, how)
    new = (out.parent / "pile").rename(out.parent / "new")
    sorting, notes = planned(out, how, new)
    assert complete(sorting).problems == notes == []
    assert sorted_names(out) == TARGETS
    assert all(path.is_file() for path in (out / "sorted").rglob("*.jpg"))
    assert undone(out) == (4, [])


def test_a_copy_whose_original_is_gone_or_changed_is_kept(out):
    sort(out, "copy")
    (out.parent / "pile/c.jpg").unlink()
    (out.parent / "pile/d.jpg").write_text("edited")
    count, problems = undone(out)
    assert count == 2
    assert all("is kept: the file is gone, has changed or leads to it" in line for line in problems)
    assert sorted_names(out) == {"dog/c.jpg", "stranger/d.jpg"}


def test_undo_puts_files_into_the_folder_that_is_named_below(out):
    sort(out, "move")
    moved, elsewhere = out.rename(out.parent / "moved"), out.parent / "elsewhere"
    assert undone(moved, elsewhere) == (4, [])
    assert (elsewhere / "a/x.jpg").exists()
    assert not (out.parent / "pile/a/x.jpg").exists()


def test_a_pile_that_leads_to_the_sorted_files_loses_none(out):
    """Then source and target are one and the same file."""
    sort(out, "move")
    target, folder = out / "sorted/dog/c.jpg", out.parent / "pile"
    content = target.read_bytes()
    for path in (folder / "b", folder / "a", folder):
        path.rmdir()
    folder.symlink_to(target.parent)
    for below in (None, out.parent):
        problems = undo(out, below).problems
        assert any("it is" in line or "a link to elsewhere now" in line for line in problems)
        assert target.read_bytes() == content


REST = ("0" * 64, "sorted")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"format": 1}, "format: invalid enum value 1"),
        ({"how": "eat"}, "how: invalid enum value 'eat'"),
        ({"steps": [["a", "b/c"]]}, "steps[0]: expected `array` of length 4"),
        ({"steps": [["a", "b/../../c", *REST]]}, "'b/../../c' is not the name of a file"),
        ({"steps": [["../a", "b/c", *REST]]}, "'../a' is not the name of a file"),
        ({"steps": [["a", "/b/c", *REST]]}, "'/b/c' is not the name of a file"),
        ({"steps": [["a", "b/c", "0", "sorted"]]}, "steps[0][2]"),
        ([], "expected `object`"),
    ],
)
def test_a_journal_that_leads_elsewhere_is_refused(change, reason, out):
    sort(out, "copy")
    path = out / "undo.json"
    path.write_text(json.dumps(change and {**json.loads(path.read_text()), **change}))
    with pytest.raises(InputError) as refused:
        undo(out)
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


# The commands


def test_where_nothing_could_be_sorted_there_is_nothing_to_undo(out):
    sorting, _ = planned(out, "move")
    for name in PILE:
        (out.parent / "pile" / name).unlink()
    outcome = complete(sorting)
    assert outcome.counts() == "0 files moved, 4 could not be sorted"
    assert not list(out.iterdir())
    (line, *_) = Classified(out, outcome=outcome).lines()
    assert line.endswith("was continued: 0 files moved, 4 could not be sorted.")


def test_of_many_problems_twenty_are_named():
    lines = named("Not sorted", [f"{n}.jpg: \x1b" for n in range(1234)])
    assert len(lines) == 21
    assert lines[0] == "Not sorted: 0.jpg: \\x1b"
    assert lines[-1] == "Not sorted: 1,214 more"


def failed(capsys, *arguments):
    with pytest.raises(SystemExit) as stopped:
        main([str(argument) for argument in arguments])
    assert stopped.value.code == 1
    return capsys.readouterr()


def test_a_command_says_what_is_where_and_tries_again(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    labeled, pile = folders(tmp_path, shots=2, pile=2, strangers=0)
    command = ["classify", "--labeled", labeled, "--unlabeled", pile, "--out", "out", *DRAWN]
    forbidden = tmp_path / "pile/more/cross-0.png"
    unlink = os.unlink

    def refuse(path, *given, **options):
        if str(path) == str(forbidden):
            raise PermissionError(errno.EPERM, os.strerror(errno.EPERM), str(path))
        unlink(path, *given, **options)

    with monkeypatch.context() as patch:
        patch.setattr(os, "unlink", refuse)
        said = failed(capsys, *command, "--apply", "move")
        line = "to out/sorted: 5 files moved, 1 could not be sorted; `semishot undo out` undoes it."
        assert line in said.out
        assert f"Not sorted: {forbidden}: Operation not permitted" in said.out
        last = "semishot: 1 of 6 files could not be sorted; the same command tries again"
        assert said.err.splitlines()[-1] == last
        assert forbidden.exists()
        again = failed(capsys, *command, "--apply", "move")
        line = "sorted again to out/sorted: 5 files in their folders, 1 could not be sorted"
        assert line in again.out
    assert "6 files in their folders;" in printed(capsys, *command, "--apply", "move")
    assert printed(capsys, "undo", "out") == "6 files moved back\n"
