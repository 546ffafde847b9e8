"""Single files of a sorting: links, pipes, forbidden and vanished files, and journals without a key."""

import errno
import os
import shlex
from pathlib import Path

import pytest

from semishot.commands.main import main
from semishot.errors import InputError
from semishot.sorter.moving import journal, move_files, plan_files
from semishot.sorter.moving.journal import read_journal, undo_command
from semishot.sorter.moving.move_files import LOCK, begin, complete, undo
from semishot.sorter.moving.plan_files import Wanted
from semishot.sorter.moving.sorted_files import find_sorted
from semishot.sorter.summary import Applied, named
from support.commands import printed, refusal
from support.four_files import CHANGED, digest, make_pile, plan, resort, sorted_names, state, undone
from support.own_images import DRAWN, folders

FORBIDDEN = [errno.EACCES, errno.EPERM, errno.EBUSY, errno.EROFS, errno.ETIMEDOUT]


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


# Links and other nodes


def test_a_pending_target_that_is_a_link_to_its_source_is_another_file(tmp_path):
    """Both have the same content: the only copy was deleted."""
    wanted = make_pile(tmp_path)
    sorting = plan(tmp_path / "out", "move", wanted)
    target = sorting.target(sorting.steps[0])
    target.parent.mkdir(parents=True)
    target.symlink_to(wanted[0][0])
    content = wanted[0][0].read_bytes()
    outcome = complete(sorting)
    (problem,) = outcome.problems
    assert "exists and is another file" in problem
    assert (outcome.count, outcome.left, outcome.gone) == (3, 1, 0)
    assert wanted[0][0].read_bytes() == content
    assert not wanted[0][0].is_symlink()
    assert undone(tmp_path / "out") == (3, [])
    assert wanted[0][0].read_bytes() == content


def test_a_pending_target_that_is_a_second_name_is_a_step_of_ours(tmp_path):
    wanted = make_pile(tmp_path)
    before = state(tmp_path)
    sorting = plan(tmp_path / "out", "move", wanted)
    target = sorting.target(sorting.steps[0])
    target.parent.mkdir(parents=True)
    os.link(wanted[0][0], target)
    assert complete(sorting).counts() == "4 files moved"
    assert not wanted[0][0].exists()
    assert undone(tmp_path / "out") == (4, [])
    assert state(tmp_path) == before


def test_a_file_that_was_written_to_between_its_two_names_stays_under_one(tmp_path):
    wanted = make_pile(tmp_path)
    sorting = plan(tmp_path / "out", "move", wanted)
    target = sorting.target(sorting.steps[0])
    target.parent.mkdir(parents=True)
    os.link(wanted[0][0], target)
    wanted[0][0].write_text("edited")
    (problem,) = complete(sorting).problems
    assert "it has changed since it was read" in problem
    assert wanted[0][0].read_text() == "edited"
    assert not os.path.lexists(target)


@pytest.mark.parametrize("kind", ["pipe", "folder", "link"])
@pytest.mark.parametrize("how", ["move", "copy", "link"])
def test_what_takes_the_place_of_a_pending_source_is_left_alone(how, kind, tmp_path):
    wanted = make_pile(tmp_path)
    sorting = plan(tmp_path / "out", how, wanted)
    source = wanted[0][0]
    source.unlink()
    if kind == "pipe":
        os.mkfifo(source)
    elif kind == "folder":
        source.mkdir()
    else:
        source.symlink_to(tmp_path / "nothing")
    outcome = complete(sorting)
    assert (outcome.count, outcome.left, outcome.gone) == (3, 0, 1)
    assert outcome.problems[0].count(str(source)) == 1
    assert os.path.lexists(source)
    assert undone(tmp_path / "out") == (3, [])
    assert os.path.lexists(source)


@pytest.mark.parametrize("kind", ["pipe", "link"])
def test_what_takes_the_place_of_a_sorted_file_is_left_alone(kind, tmp_path):
    wanted = make_pile(tmp_path)
    complete(plan(tmp_path / "out", "move", wanted))
    target = tmp_path / "out/sorted/dog/c.jpg"
    content = target.read_bytes()
    target.rename(wanted[2][0])  # put back by hand
    os.mkfifo(target) if kind == "pipe" else target.symlink_to(wanted[2][0])
    assert undone(tmp_path / "out") == (3, [])
    assert wanted[2][0].read_bytes() == content
    assert os.path.lexists(target)


def test_a_link_in_the_place_of_another_class_deletes_nothing(tmp_path):
    complete(plan(tmp_path / "out", "move", make_pile(tmp_path)))
    again = resort(tmp_path, "move", CHANGED)
    earlier, target = again.earlier(again.steps[1]), again.target(again.steps[1])
    target.symlink_to(earlier)
    content = earlier.read_bytes()
    outcome = complete(again)
    assert (outcome.count, outcome.left) == (3, 1)
    assert earlier.read_bytes() == content
    assert not earlier.is_symlink()
    target.unlink()
    assert undone(tmp_path / "out") == (4, [])


def test_the_copy_that_its_source_leads_to_is_kept(tmp_path):
    wanted = make_pile(tmp_path)
    complete(plan(tmp_path / "out", "copy", wanted))
    wanted[2][0].unlink()
    wanted[2][0].symlink_to(tmp_path / "out/sorted/dog/c.jpg")
    count, (problem,) = undone(tmp_path / "out")
    assert count == 3
    assert "it is kept" in problem
    assert wanted[2][0].read_bytes()
    wanted[2][0].unlink()
    (tmp_path / "photos").mkdir()
    (tmp_path / "out/sorted/dog/c.jpg").rename(tmp_path / "photos/c.jpg")
    wanted[2][0].symlink_to(tmp_path / "photos/c.jpg")
    assert undone(tmp_path / "out") == (0, [])


def test_a_copy_of_a_linked_image_is_removed(tmp_path):
    make_pile(tmp_path)
    link = tmp_path / "pile/link.jpg"
    link.symlink_to(tmp_path / "pile/c.jpg")
    complete(plan(tmp_path / "out", "copy", [(link, "cat", digest(link))]))
    assert not (tmp_path / "out/sorted/cat/link.jpg").is_symlink()
    assert undone(tmp_path / "out") == (1, [])
    assert link.is_symlink()


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


def test_a_pile_that_has_moved_behind_a_link_is_named_below(tmp_path):
    wanted = make_pile(tmp_path)
    complete(plan(tmp_path / "out", "move", wanted))
    (tmp_path / "pile").rename(tmp_path / "moved")
    (tmp_path / "pile").symlink_to(tmp_path / "moved")
    count, problems = undone(tmp_path / "out")
    assert (count, len(problems)) == (0, 4)
    assert undo(tmp_path / "out", tmp_path / "moved").count == 4
    assert (tmp_path / "moved/a/x.jpg").exists()


# One file's problem


@pytest.mark.parametrize("error", FORBIDDEN)
def test_a_forbidden_file_is_its_own_problem(error, tmp_path, forbid):
    wanted = make_pile(tmp_path)
    before = state(tmp_path)
    source = wanted[1][0]
    forbid(source, error)
    outcome = complete(plan(tmp_path / "out", "move", wanted))
    assert outcome.counts() == "3 files moved, 1 stayed where it was"
    assert outcome.problems == [f"{source}: {os.strerror(error)}"]
    assert source.stat().st_nlink == 1
    assert sorted_names(tmp_path) == {"cat/x.jpg", "dog/c.jpg", "stranger/d.jpg"}
    assert [step.source for step in read_journal(tmp_path / "out").steps] == [
        wanted[0][0],
        *(path for path, _, _ in wanted[2:]),
    ]
    forbid(None)
    now = find_sorted(read_journal(tmp_path / "out"))
    assert complete(plan(tmp_path / "out", "move", wanted, now)).counts() == "4 files moved"
    forbid(tmp_path / "out/sorted/dog/c.jpg", error)
    count, (problem,) = undone(tmp_path / "out")
    assert (count, os.strerror(error) in problem) == (3, True)
    assert (tmp_path / "out/sorted/dog/c.jpg").stat().st_nlink == 1
    assert not wanted[2][0].exists()
    forbid(None)
    assert undone(tmp_path / "out") == (1, [])
    assert state(tmp_path) == before


def test_after_a_kill_a_forbidden_file_has_one_name_again(tmp_path, forbid):
    wanted = make_pile(tmp_path)
    sorting = plan(tmp_path / "out", "move", wanted)
    target = sorting.target(sorting.steps[2])
    target.parent.mkdir(parents=True)
    os.link(wanted[2][0], target)
    forbid(wanted[2][0], calls=("unlink",))
    assert complete(sorting).counts() == "3 files moved, 1 stayed where it was"
    assert not target.exists()
    assert wanted[2][0].stat().st_nlink == 1
    forbid(None)
    undo(tmp_path / "out")
    complete(plan(tmp_path / "out", "move", wanted))
    os.link(target, wanted[2][0])  # an undo that was killed
    forbid(target, calls=("unlink",))
    assert undo(tmp_path / "out").count == 3
    assert target.stat().st_nlink == 1
    assert not wanted[2][0].exists()


def test_sorted_again_a_forbidden_file_stays_in_its_class(tmp_path, forbid):
    wanted = make_pile(tmp_path)
    before = state(tmp_path)
    complete(plan(tmp_path / "out", "move", wanted))
    again = resort(tmp_path, "move", CHANGED)
    forbid(again.earlier(again.steps[1]))
    outcome = complete(again)
    assert outcome.counts(again=True) == "3 files in their folders, 1 stayed where it was"
    forbid(None)
    assert undone(tmp_path / "out") == (4, [])
    assert state(tmp_path) == before


def test_a_file_that_vanished_does_not_spoil_a_later_undo(tmp_path):
    wanted = make_pile(tmp_path)
    sorting = plan(tmp_path / "out", "move", wanted)
    wanted[0][0].unlink()
    outcome = complete(sorting)
    assert outcome.counts() == "3 files moved, 1 is gone"
    assert undone(tmp_path / "out") == (3, [])


def test_a_file_that_vanished_after_a_kill_is_named_once(tmp_path):
    wanted = make_pile(tmp_path)
    plan(tmp_path / "out", "move", wanted)
    wanted[0][0].unlink()
    count, (problem,) = undone(tmp_path / "out")
    assert (count, "it is gone, and" in problem) == (0, True)
    with pytest.raises(InputError, match="nothing to undo"):
        undo(tmp_path / "out")


def test_where_nothing_could_be_sorted_there_is_nothing_to_undo(tmp_path):
    wanted = make_pile(tmp_path)
    sorting = plan(tmp_path / "out", "move", wanted)
    for path, _, _ in wanted:
        path.unlink()
    outcome = complete(sorting)
    assert outcome.counts() == "0 files moved, 4 are gone"
    assert not outcome.undoable
    assert not list((tmp_path / "out").iterdir())
    lines = Applied(outcome, [], "semishot undo out").lines("Sorted")
    assert lines[0] == "Sorted: 0 files moved, 4 are gone."


def test_what_was_moved_by_hand_after_a_kill_is_found(tmp_path):
    wanted = make_pile(tmp_path)
    before = state(tmp_path)
    sorting = plan(tmp_path / "out", "move", wanted)
    for name in ("cat", "dog"):
        (tmp_path / "out/sorted" / name).mkdir(parents=True)
    wanted[0][0].rename(tmp_path / "out/sorted/dog/by hand.jpg")
    assert complete(sorting).counts() == "4 files moved"
    assert undone(tmp_path / "out") == (4, [])
    assert state(tmp_path) == before


def test_what_was_moved_by_hand_and_cannot_be_read_now_is_not_forgotten(tmp_path, monkeypatch):
    """Found by the model: it was taken for gone, and a later undo did not know of it."""
    wanted = make_pile(tmp_path)
    before = state(tmp_path)
    plan(tmp_path / "out", "move", wanted)
    hand = tmp_path / "out/sorted/dog/by hand.jpg"
    hand.parent.mkdir(parents=True)
    wanted[0][0].rename(hand)
    call = os.open

    def refuse(path, *given, **options):
        if Path(path) == hand:
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))
        return call(path, *given, **options)

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", refuse)
        assert undo(tmp_path / "out").problems
        assert len(complete(read_journal(tmp_path / "out")).problems) == 1
    assert undo(tmp_path / "out").problems == []
    assert state(tmp_path) == before


def test_a_new_file_where_one_is_gone_is_sorted(tmp_path):
    """Both have the same name in the pile; only the old one was taken away by the user."""
    wanted = make_pile(tmp_path)
    complete(plan(tmp_path / "out", "move", wanted))
    (tmp_path / "out/sorted/dog/c.jpg").unlink()
    path = wanted[2][0]
    path.write_text("new")
    now = find_sorted(read_journal(tmp_path / "out"))
    outcome = complete(plan(tmp_path / "out", "move", [(path, "cat", digest(path))], now))
    assert outcome.counts() == "1 file moved"
    assert (tmp_path / "out/sorted/cat/c.jpg").read_text() == "new"
    assert len(read_journal(tmp_path / "out").steps) == 5


def test_a_journal_too_large_to_be_read_is_refused_before_a_file_is_moved(tmp_path, monkeypatch):
    wanted = make_pile(tmp_path)
    before = state(tmp_path)
    monkeypatch.setattr(move_files, "MOST_PLANNED", 500)
    with pytest.raises(
        InputError, match=r"undo.json would have [\d,]+ bytes for 4 files, more than 500"
    ):
        plan(tmp_path / "out", "move", wanted)
    assert state(tmp_path) == before
    assert journal.MOST_PLANNED < journal.MOST_BYTES


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


@pytest.fixture
def no_key(monkeypatch, tmp_path):
    """The home folder is a file."""
    (tmp_path / "home").write_text("")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "home" / "data"))
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("no_key")
def test_where_no_key_can_be_stored_the_command_that_undoes_it_is_printed(capsys, tmp_path):
    command = [*given(tmp_path), "--apply", "move"]
    before = {p: p.read_bytes() for p in (tmp_path / "pile").rglob("*.png")}
    said = printed(capsys, *command)
    assert f"`semishot undo out --below {tmp_path / 'pile'}` undoes it" in said
    assert "sorted again" in printed(capsys, *command)
    undoing = shlex.split(undo_command(Path("out"), tmp_path / "pile"))
    assert printed(capsys, *undoing[1:]) == "6 files moved back\n"
    assert {p: p.read_bytes() for p in (tmp_path / "pile").rglob("*.png")} == before


@pytest.mark.usefixtures("no_key")
def test_where_no_key_can_be_stored_a_killed_sorting_goes_on(capsys, tmp_path):
    command = [*given(tmp_path), "--apply", "move"]
    files = sorted((tmp_path / "pile").rglob("*.png"))
    wanted = [Wanted(path, path.name.split("-")[0], digest(path)) for path in files]
    Path("out").mkdir()
    begin(plan_files.plan(Path("out"), "move", wanted))
    said = printed(capsys, *command)
    assert "to out/sorted is complete: 6 files moved; `semishot undo out --below" in said
    refused = refusal(capsys, "undo", "out")
    assert "was not written by you" in refused
    assert not (Path("out") / LOCK).exists()


@pytest.mark.usefixtures("no_key")
def test_where_no_key_can_be_stored_what_could_not_be_undone_is_refused(capsys, tmp_path):
    command = given(tmp_path)
    before = sorted((tmp_path / "pile").rglob("*.png"))
    Path("table.csv").write_text(
        "path,label\n" + "".join(f"{p},\n" for p in before[1:]) + f"{before[0]},circle\n"
    )
    table = ["classify", "--labeled", "table.csv", "--out", "out", *DRAWN]
    refused = refusal(capsys, *table, "--apply", "move")
    assert "a sorting without --unlabeled could not be undone" in refused
    assert "set XDG_DATA_HOME to a writable folder" in refused
    assert not Path("out").exists()
    Path("few").mkdir()
    refused = refusal(capsys, *table, "--unlabeled", "few", "--apply", "move")
    assert "which is not in few, could not be undone" in refused
    assert sorted((tmp_path / "pile").rglob("*.png")) == before
    assert "predictions" in printed(capsys, *command)  # without --apply, no key is needed


@pytest.mark.parametrize("folder", [None, "relative"])
def test_without_a_home_folder_there_is_no_key_and_no_traceback(folder, monkeypatch):
    from semishot.system import signing

    def nowhere(name):
        if folder is None:
            raise RuntimeError("could not determine the home directory")
        return folder

    monkeypatch.setattr(signing, "user_data_dir", nowhere)
    assert not signing.can_sign()
    assert signing.sign("text") == ""
    assert not Path("relative").exists()
