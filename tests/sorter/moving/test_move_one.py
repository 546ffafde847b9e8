"""Single files of a sorting: links, pipes, forbidden and vanished files; and what the commands say."""

import errno
import os
from pathlib import Path

import pytest

from semishot.commands.main import main
from semishot.sorter.moving.journal import read_journal
from semishot.sorter.moving.move_files import complete, undo
from semishot.sorter.summary import Classified, named
from support.commands import printed
from support.four_files import make_pile, plan, undone
from support.own_images import DRAWN, folders


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
