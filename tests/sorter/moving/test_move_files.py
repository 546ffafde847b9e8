"""Sorting files: nothing overwritten, nothing outside, killed at any instant, undone exactly."""

import errno
import json
import os
from dataclasses import replace

import pytest

from semishot.errors import InputError
from semishot.sorter.listing import STRANGER
from semishot.sorter.moving import journal as journal_file
from semishot.sorter.moving import move_files, move_one, plan_files, sorted_files
from semishot.sorter.moving.journal import Sorting, read_journal
from semishot.sorter.moving.move_files import Undone, begin, complete, undo
from semishot.sorter.moving.plan_files import Wanted
from semishot.sorter.moving.sorted_files import find_sorted
from semishot.system import files, transfer
from semishot.system.folder_names import folded as fold
from semishot.system.folder_names import folder_names, safe_name
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
from support.killing import attempt

WATCHED = {
    *(move_files.__file__, move_one.__file__, transfer.__file__, journal_file.__file__),
    *(files.__file__, sorted_files.__file__),
}


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


@pytest.fixture
def plain(monkeypatch):
    """No progress and no fsync, which is for a power cut: they take most of the time."""
    monkeypatch.setattr(os, "fsync", lambda file: None)
    for module in (move_files, sorted_files):
        monkeypatch.setattr(module, "track", lambda items, label, total: items)


WAYS = [
    ("move", True),
    pytest.param("move", False, marks=pytest.mark.slow),
    pytest.param("copy", True, marks=pytest.mark.slow),
    pytest.param("link", True, marks=pytest.mark.slow),
]


@pytest.mark.thorough
@pytest.mark.usefixtures("plain")
@pytest.mark.parametrize(("how", "hard_links"), WAYS)
def test_killed_at_any_instant_it_is_completed_or_undone(how, hard_links, tmp_path, monkeypatch):
    """Also where a file can have one name only, so that moving is copying."""
    if not hard_links:
        monkeypatch.setattr(
            os, "link", lambda *a, **k: (_ for _ in ()).throw(OSError(errno.EXDEV, ""))
        )

    def work(root):
        before = read_journal(root / "out")
        complete(before or plan(root / "out", how, piles[root]))

    piles = {tmp_path / "whole": make_pile(tmp_path / "whole")}
    events = attempt(lambda: work(tmp_path / "whole"), WATCHED)
    assert events > 100
    step = max(1, events // 25)
    for moment in range(1, events, step):
        for ending in ("complete", "undo"):
            root = tmp_path / f"{moment}-{ending}"
            piles[root] = make_pile(root)
            before = state(root)
            assert attempt(lambda root=root: work(root), WATCHED, moment) is None
            if ending == "complete":
                work(root)
                assert sorted_names(root) == TARGETS
                assert all(path.exists() == (how != "move") for path, _, _ in piles[root])
            if read_journal(root / "out") is not None:
                assert undo(root / "out").problems == []
            left = {k: v for k, v in state(root).items() if not k.endswith(".tmp")}
            assert left == before, (moment, ending)


def test_a_copy_killed_between_its_two_names_leaves_one(tmp_path):
    journal = plan(tmp_path / "out", "copy", make_pile(tmp_path))
    complete(journal)
    whole = set(state(tmp_path))
    whole_one = tmp_path / "out/sorted/cat/x.jpg"
    os.link(whole_one, move_one._part(whole_one, journal.steps[0].digest))
    assert complete(journal).problems == []
    assert set(state(tmp_path)) == whole


@pytest.mark.thorough
@pytest.mark.usefixtures("plain")
def test_an_undo_that_is_killed_goes_on(how, tmp_path):
    make = []
    for moment in range(1, 400, 13):
        root = tmp_path / str(moment)
        wanted = make_pile(root)
        before = state(root)
        complete(plan(root / "out", how, wanted))
        make.append(attempt(lambda root=root: undo(root / "out"), WATCHED, moment))
        if read_journal(root / "out") is not None:
            assert undo(root / "out").problems == []
        (root / "out" / move_files.LOCK).unlink(missing_ok=True)  # if only that was left to do
        assert state(root) == before
        if make[-1] is not None:
            break
    assert len(make) > 5


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


@pytest.mark.thorough
@pytest.mark.usefixtures("plain")
@pytest.mark.parametrize(("how", "hard_links"), WAYS)
def test_sorted_again_and_killed_it_is_completed_or_undone(how, hard_links, tmp_path, monkeypatch):
    if not hard_links:
        monkeypatch.setattr(
            os, "link", lambda *a, **k: (_ for _ in ()).throw(OSError(errno.EXDEV, ""))
        )

    def prepare(root):
        wanted = make_pile(root)
        before = state(root)
        complete(plan(root / "out", how, wanted))
        return before

    def work(root):
        journal = read_journal(root / "out")
        complete(resort(root, how, CHANGED) if journal.done else journal)

    prepare(tmp_path / "whole")
    events = attempt(lambda: work(tmp_path / "whole"), WATCHED)
    assert events > 100
    for moment in range(1, events, max(1, events // 20)):
        for ending in ("complete", "undo"):
            root = tmp_path / f"{moment}-{ending}"
            before = prepare(root)
            assert attempt(lambda root=root: work(root), WATCHED, moment) is None
            if ending == "complete":
                work(root)
                assert sorted_names(root) == CHANGED_TARGETS
            assert undo(root / "out").problems == []
            left = {k: v for k, v in state(root).items() if not k.endswith(".tmp")}
            assert left == before, (moment, ending)


def test_new_files_are_added_and_files_that_are_not_wanted_stay(how, tmp_path):
    wanted = make_pile(tmp_path)
    before = state(tmp_path)
    complete(plan(tmp_path / "out", how, wanted[:3]))
    now = find_sorted(read_journal(tmp_path / "out"))
    complete(plan(tmp_path / "out", how, [wanted[3], (wanted[0][0], "dog", wanted[0][2])], now))
    assert sorted_names(tmp_path) == {"dog/x.jpg", "cat/x~2.jpg", "dog/c.jpg", "stranger/d.jpg"}
    assert undone(tmp_path / "out") == (4, [])
    assert state(tmp_path) == before


def test_files_moved_by_hand_are_found_by_their_content_and_put_back(how, tmp_path):
    wanted = make_pile(tmp_path)
    before = state(tmp_path)
    complete(plan(tmp_path / "out", how, wanted))
    sorted_ = tmp_path / "out/sorted"
    (sorted_ / "cat/x.jpg").rename(sorted_ / "dog/other name.jpg")
    (sorted_ / "new").mkdir()
    (sorted_ / "cat/x~2.jpg").rename(sorted_ / "cat/x.jpg")  # renamed, not moved
    (sorted_ / "dog/c.jpg").rename(sorted_ / "new/c.jpg")
    found = find_sorted(read_journal(tmp_path / "out"))
    assert [one.path.relative_to(sorted_).as_posix() for one in found] == [
        *("dog/other name.jpg", "cat/x.jpg", "new/c.jpg", "stranger/d.jpg")
    ]
    assert [one.moved_by_hand for one in found] == [True, False, True, False]
    assert undone(tmp_path / "out") == (4, [])
    assert state(tmp_path) == before
    assert not sorted_.exists()


def test_two_files_that_have_changed_places_are_told_apart(tmp_path):
    complete(plan(tmp_path / "out", "move", make_pile(tmp_path)))
    one, other = (tmp_path / "out/sorted" / name for name in ("cat/x.jpg", "dog/c.jpg"))
    one.rename(tmp_path / "aside")
    other.rename(one)
    (tmp_path / "aside").rename(other)
    found = find_sorted(read_journal(tmp_path / "out"))
    assert [found[0].path, found[2].path] == [other, one]


def test_undo_does_the_others_and_keeps_what_is_gone_in_the_journal(tmp_path):
    wanted = make_pile(tmp_path)
    complete(plan(tmp_path / "out", "move", wanted))
    (tmp_path / "out/sorted/dog/c.jpg").rename(tmp_path / "elsewhere.jpg")
    count, (problem,) = undone(tmp_path / "out")
    assert count == 3
    assert "it is gone, and" in problem
    assert [path.exists() for path, _, _ in wanted] == [True, True, False, True]
    assert [step.source for step in read_journal(tmp_path / "out").steps] == [wanted[2][0]]
    (tmp_path / "out/sorted/dog").mkdir(parents=True)
    (tmp_path / "elsewhere.jpg").rename(tmp_path / "out/sorted/dog/back.jpg")
    assert undone(tmp_path / "out") == (1, [])
    assert wanted[2][0].exists()


def test_a_journal_of_version_0_1_is_sorted_again(tmp_path):
    """Its strangers are in a folder of another name."""
    wanted = make_pile(tmp_path)
    before = state(tmp_path)
    planned = plan_files.plan(tmp_path / "out", "move", [Wanted(*one) for one in wanted])
    steps = [replace(s, folder=s.folder.replace(STRANGER, "_irrelevant")) for s in planned.steps]
    complete(begin(Sorting(tmp_path / "out", "move", False, tuple(steps))))
    assert (tmp_path / "out/sorted/_irrelevant/d.jpg").exists()
    complete(resort(tmp_path, "move", [label for _, label, _ in wanted]))
    assert sorted_names(tmp_path) == TARGETS
    assert undone(tmp_path / "out") == (4, [])
    assert state(tmp_path) == before


def test_what_undo_did_is_said():
    assert Undone("move", 1, []).line() == "1 file moved back"
    assert Undone("copy", 1, []).line() == "1 copy removed; your files stayed where they were"
    assert (
        Undone("link", 1200, []).line() == "1,200 links removed; your files stayed where they were"
    )


def test_nothing_is_overwritten(how, tmp_path):
    wanted = make_pile(tmp_path)
    there = tmp_path / "out/sorted/cat/X.jpg"
    there.parent.mkdir(parents=True)
    there.with_name("x.jpg").write_text("mine")
    complete(plan(tmp_path / "out", how, wanted))
    assert there.with_name("x.jpg").read_text() == "mine"
    assert sorted_names(tmp_path) == TARGETS | {"cat/x~3.jpg"}
    undo(tmp_path / "out")
    assert sorted_names(tmp_path) == {"cat/x.jpg"}


def test_a_file_that_came_in_between_stays(how, tmp_path):
    wanted = make_pile(tmp_path)
    ready = plan(tmp_path / "out", how, wanted)
    late = tmp_path / "out/sorted/dog/c.jpg"
    late.parent.mkdir(parents=True)
    late.write_text("mine")
    (problem,) = complete(ready).problems
    assert "c.jpg" in problem
    assert late.read_text() == "mine"
    assert wanted[2][0].exists()
    assert undone(tmp_path / "out") == (3, [])
    assert late.read_text() == "mine"


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


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_ends_the_work_which_goes_on_later(tmp_path, monkeypatch, error):
    wanted = make_pile(tmp_path)
    before = state(tmp_path)
    ready = plan(tmp_path / "out", "copy", wanted)
    copied = []

    def refuse(*of):
        copied.append(of)
        if len(copied) == 3:
            raise OSError(error, os.strerror(error))

    with monkeypatch.context() as patch:
        patch.setattr(transfer.shutil, "copystat", refuse)
        with pytest.raises(OSError, match=os.strerror(error)) as caught:
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
def test_an_undo_onto_a_full_disk_ends_and_goes_on_later(tmp_path, monkeypatch):
    wanted = make_pile(tmp_path)
    before = state(tmp_path)
    complete(plan(tmp_path / "out", "move", wanted))

    def refuse(*of):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(transfer.shutil, "copystat", refuse)
        with pytest.raises(OSError, match=r"No space left on device \(0 of 4 files undone\)"):
            undo(tmp_path / "out")
    assert undone(tmp_path / "out") == (4, [])
    assert state(tmp_path) == before


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


@pytest.mark.usefixtures("no_hard_links")
def test_a_file_of_the_users_that_ends_in_part_stays(tmp_path):
    wanted = make_pile(tmp_path)
    for name in ("pile/.c.jpg.part", "out/sorted/dog/.c.jpg.part"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("mine")
    before = state(tmp_path)
    complete(plan(tmp_path / "out", "move", wanted))
    assert undone(tmp_path / "out") == (4, [])
    assert state(tmp_path) == before


def test_an_undo_killed_between_the_two_names_of_a_file_leaves_one(tmp_path):
    wanted = make_pile(tmp_path)
    before = state(tmp_path)
    complete(plan(tmp_path / "out", "move", wanted))
    path, _, there = wanted[2]
    os.link(tmp_path / "out/sorted/dog/c.jpg", path)
    os.link(path, move_one._part(path, there))
    assert undone(tmp_path / "out") == (4, [])
    assert state(tmp_path) == before


@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_a_journal_that_is_no_regular_file_is_not_read(tmp_path, kind):
    path = tmp_path / "undo.json"
    os.mkfifo(path) if kind == "pipe" else path.symlink_to("/dev/zero")
    with pytest.raises(InputError, match="undo.json is not a regular file"):
        undo(tmp_path)


def test_the_last_copy_of_an_image_is_kept(tmp_path):
    wanted = make_pile(tmp_path)
    complete(plan(tmp_path / "out", "copy", wanted))
    wanted[2][0].unlink()
    count, (problem,) = undone(tmp_path / "out")
    assert count == 3
    assert "it is kept" in problem
    assert sorted_names(tmp_path) == {"dog/c.jpg"}


@pytest.mark.parametrize(
    ("name", "safe"),
    [
        ("cat", "cat"),
        ("über Katze (2)", "über Katze (2)"),
        ("../../etc", "%2E.%2F..%2Fetc"),
        ("/etc/passwd", "%2Fetc%2Fpasswd"),
        ("a\\b:c", "a%5Cb%3Ac"),
        ("a\nb", "a%0Ab"),
        ("..", "%2E%2E"),
        (".", "%2E"),
        ("", "%"),
        ("con", "con%"),
        ("LPT1.txt", "LPT1.txt%"),
        ("-rf", "%2Drf"),
        ("dot.", "dot%2E"),
        ("100%", "100%25"),
        ("\udcff", "%ED%B3%BF"),
    ],
)
def test_a_class_name_is_one_safe_folder(name, safe):
    assert safe_name(name) == safe


def test_folders_differ_where_classes_do():
    names = [
        "Cat",
        "cat",
        "strangers",
        "Stranger",
        "x" * 500,
        "x" * 501,
        "é",
        "e\u0301",
        "a/b",
        "a%2Fb",
    ]
    found = folder_names(names, STRANGER)
    folded = {fold(name) for name in found.values()} | {STRANGER}
    assert len(folded) == len(names) + 1
    assert max(len(name.encode()) for name in found.values()) < 130


def test_many_files_of_one_name_are_planned_in_a_moment(tmp_path):
    (tmp_path / "out").mkdir()
    wanted = [(tmp_path / str(n) / "img.jpg", "cat", "") for n in range(5000)]
    names = {step.name for step in plan(tmp_path / "out", "copy", wanted).steps}
    assert len(names) == 5000
    assert {"img.jpg", "img~2.jpg", "img~5000.jpg"} <= names


def test_a_folder_that_is_a_link_to_elsewhere_is_refused(how, tmp_path):
    wanted = make_pile(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "out/sorted").mkdir()
    (tmp_path / "out/sorted/cat").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InputError, match="is a link to elsewhere"):
        complete(plan(tmp_path / "out", how, wanted))
    assert not list((tmp_path / "elsewhere").iterdir())
    assert any("link to elsewhere" in line for line in undo(tmp_path / "out").problems)


def step(source="/a", folder="b", name="c", digest="0" * 64) -> dict[str, object]:
    return {"steps": [[source, folder, name, digest]]}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"format": 2}, "format must be 1, not 2"),
        ({"how": "eat"}, "how must be one of move, copy, link, not 'eat'"),
        ({"done": "yes"}, "done must be true or false, not 'yes'"),
        ({"steps": 3}, "steps must be a list, not 3"),
        ({"steps": [["/a", "b"]]}, "steps[0] must be four or six strings, not ['/a', 'b']"),
        (step(folder=".."), "steps[0]: folder must be the name of a file, not '..'"),
        (step(name="../../c"), "steps[0]: name must be the name of a file, not '../../c'"),
        (step(name="c\0"), "steps[0]: name must be the name of a file"),
        (step(source="a"), "steps[0]: source must be an absolute path, not 'a'"),
        (step(source="/a\0"), "steps[0]: source must be an absolute path"),
        (step(folder="\ud800"), "surrogates not allowed"),
        (step(digest="0"), "steps[0]: digest must be a SHA-256, not '0'"),
        ([], "it must be an object, not []"),
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


def test_a_journal_that_is_cut_off_is_refused(tmp_path):
    (tmp_path / "undo.json").write_text("{")
    with pytest.raises(InputError, match="undo.json is damaged, or of another version"):
        undo(tmp_path)


@pytest.mark.parametrize("digest", [None, 7, [], "", "\ud800", "../" * 20])
def test_a_journal_whose_digests_are_none_is_refused(digest, tmp_path):
    complete(plan(tmp_path / "out", "move", make_pile(tmp_path)))
    path = tmp_path / "out/undo.json"
    said = json.loads(path.read_text())
    said["steps"][0][3] = digest
    path.write_text(json.dumps(said))
    with pytest.raises(InputError, match="undo.json is damaged, or of another version"):
        undo(tmp_path / "out", tmp_path)


def test_nothing_to_undo_is_said(tmp_path):
    with pytest.raises(InputError, match="nothing to undo"):
        undo(tmp_path)
