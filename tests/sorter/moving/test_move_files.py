"""Sorting files: nothing overwritten, nothing outside, killed at any instant, undone exactly."""

import errno
import json
import os

import pytest

from semishot.errors import InputError
from semishot.sorter.listing import STRANGER
from semishot.sorter.moving import journal as journal_file
from semishot.sorter.moving import one_file
from semishot.sorter.moving import plan as plans
from semishot.sorter.moving.journal import read_journal
from semishot.sorter.moving.move_files import complete, undo
from semishot.system.folder_names import folded, folder_names, safe_name
from support.four_files import (
    CHANGED,
    CHANGED_TARGETS,
    TARGETS,
    digest,
    make_pile,
    plan,
    resort,
    sorted_names,
    state,
    undone,
)


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
    moved = [plans.Wanted(*each) for each in wanted if how != "move"]
    sorting, notes = plans.plan(tmp_path / "out", how, moved)
    journal_file.write_journal(sorting)
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
        plans.Wanted(tmp_path / "new" / path.relative_to(tmp_path / "pile"), label, content)
        for path, label, content in wanted
    ]
    sorting, notes = plans.plan(tmp_path / "out", how, again, tmp_path / "new")
    journal_file.write_journal(sorting)
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
    files = [plans.Wanted(other, "cat", digest(other))]
    sorting, _ = plans.plan(tmp_path / "out", how, files, other.parent)
    journal_file.write_journal(sorting)
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
