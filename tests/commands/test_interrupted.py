"""The last line of an interrupted command: true of this command, and of what it was doing."""

from pathlib import Path

import pytest

from semishot.commands import main as entry
from semishot.commands.main import CHECKPOINT, main
from semishot.sorter.moving import move_files
from support.commands import printed
from support.own_images import folders

SORT = ["classify", "--labeled", "labeled", "--unlabeled", "pile", "--out", "out"]
DRAWN = [*SORT, "--encoder", "omniglot", "--device", "cpu"]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def interrupted(*of, **options):
    raise KeyboardInterrupt


def last_line(capsys, *arguments: str) -> str:
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    assert ended.value.code == 130
    return capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize(
    ("command", "left"),
    [
        ("train", CHECKPOINT),
        ("demo", CHECKPOINT),
        ("reproduce table1", CHECKPOINT),
        ("classify", "the features of images read so far are kept, and the same command continues"),
        ("predict", "run it again; with --cache, the features of images read so far are kept"),
        ("label", "answers are kept, and the same command continues"),
        ("undo", "the same command undoes the rest"),
        ("data prepare", "run it again; a large data set continues where it stopped"),
        ("data verify", ""),
        ("export", ""),
        ("", ""),
    ],
)
def test_each_command_says_what_is_kept_of_it(capsys, monkeypatch, command, left):
    """`classify` and `data prepare` spoke of checkpoints, which only trainings have."""
    monkeypatch.setattr(entry, "run", interrupted)
    said = last_line(capsys, *command.split())
    assert said == "semishot: interrupted" + (f"; {left}" if left else "")


def test_while_files_are_sorted_it_says_how_to_go_on_and_back(capsys, monkeypatch, tmp_path):
    folders(tmp_path)
    line = (
        "semishot: interrupted; some files are sorted: the same command sorts the others, `semishot undo "
        "out` undoes it"
    )
    done = []

    def third(*file):
        if len(done) == 3:
            raise KeyboardInterrupt
        done.append(place(*file))

    place = move_files.place
    with monkeypatch.context() as patched:
        patched.setattr(move_files, "place", third)
        assert last_line(capsys, *DRAWN, "--apply", "move") == line
        assert last_line(capsys, *DRAWN, "--apply", "move") == line  # while it is completed
    assert len(list(Path("pile").rglob("*.png"))) == 21
    assert "is complete: 24 files moved" in printed(capsys, *DRAWN, "--apply", "move")
