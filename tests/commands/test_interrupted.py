"""The last line of an interrupted command: true of this command, and of what it was doing."""

from pathlib import Path

import numpy as np
import pytest

from semishot.commands import main as entry
from semishot.commands.main import CHECKPOINT, LEFT, Group, all_commands, main
from semishot.sorter import embedding_cache, fitted_pile
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


def test_what_is_kept_is_said_of_commands_that_exist():
    for name in LEFT:
        found = all_commands()[name.split()[0]]
        assert " " not in name or (isinstance(found, Group) and name.split()[1] in found.commands)


@pytest.mark.parametrize("phase", ["reading", "learning"])
def test_features_are_kept_as_the_line_says(capsys, monkeypatch, tmp_path, phase):
    folders(tmp_path)
    kept = "the features of images read so far are kept, and the same command continues"
    with monkeypatch.context() as patched:
        if phase == "reading":  # after the first features
            patched.setattr(embedding_cache, "MOST_SECONDS", -1.0)
            written = []

            def second(path, content):
                if written:
                    raise KeyboardInterrupt
                written.append(write_whole(path, content))

            write_whole = embedding_cache.write_whole
            patched.setattr(embedding_cache, "write_whole", second)
        else:
            patched.setattr(fitted_pile, "fit_pile", interrupted)
        assert last_line(capsys, *DRAWN) == f"semishot: interrupted; {kept}"
    before = list(Path("out/embeddings").rglob("*.safetensors"))
    assert before
    assert "24 images in the pile" in printed(capsys, *DRAWN)
    assert set(before) <= set(Path("out/embeddings").rglob("*.safetensors"))


def test_while_files_are_sorted_it_says_how_to_go_on_and_back(capsys, monkeypatch, tmp_path):
    folders(tmp_path)
    line = (
        "semishot: interrupted; some files are sorted: the same command sorts the others, `semishot undo "
        "out` undoes it"
    )
    done = []

    def third(sorting, step):
        if len(done) == 3:
            raise KeyboardInterrupt
        done.append(sort_one(sorting, step))

    sort_one = move_files.sort_one
    with monkeypatch.context() as patched:
        patched.setattr(move_files, "sort_one", third)
        assert last_line(capsys, *DRAWN, "--apply", "move") == line
        assert last_line(capsys, *DRAWN, "--apply", "move") == line  # while it is completed
    assert len(list(Path("pile").rglob("*.png"))) == 21
    assert "is complete: 24 files moved" in printed(capsys, *DRAWN, "--apply", "move")


def test_of_given_features_nothing_is_kept(capsys, monkeypatch):
    np.save("a.npy", np.eye(4, dtype=np.float32))
    np.save("b.npy", np.eye(4, dtype=np.float32))
    Path("labels.csv").write_text("label\na\na\nb\nb\n")
    given = ["--labeled", "a.npy", "--labels", "labels.csv", "--unlabeled", "b.npy", "--out", "out"]
    monkeypatch.setattr(fitted_pile, "fit_pile", interrupted)
    assert last_line(capsys, "classify", *given) == "semishot: interrupted; run it again"
