"""A pipe in any place where a command looks is refused or left alone: nobody would ever write to it."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from semishot.commands.main import main
from semishot.errors import InputError
from semishot.sorter.embedding_cache import EmbeddingCache
from semishot.system.databases import connect
from support.commands import printed, refusal
from support.own_images import DRAWN, folders
from support.presets import shorten

SECONDS = 60
"""After which a command hangs; it takes two."""


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch) -> Iterator[None]:
    """In a folder of its own; whoever waits for a pipe is interrupted."""
    monkeypatch.chdir(tmp_path)
    before = signal.signal(signal.SIGALRM, hangs)
    signal.alarm(SECONDS)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def hangs(number: int, frame: object) -> None:
    pytest.fail("it waits for the pipe")


def pipe(name: str) -> Path:
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    os.mkfifo(path)
    return path


def test_pipes_named_like_temporary_files_are_left_alone(capsys, tmp_path):
    """In OUT, whose lock is held meanwhile, in the cache, and beside the output of `predict`."""
    labeled, pile = folders(tmp_path)
    given = ["classify", "--labeled", labeled, "--unlabeled", pile, *DRAWN, "--out", "out"]
    printed(capsys, *given, "--cache", "cache")
    (segment,) = Path("cache").glob("*/*.safetensors")
    made = [
        *map(pipe, ("out/.predictions.csv.1.tmp", "out/.result.json.1.tmp", ".p.csv.1.tmp")),
        *map(pipe, (f"{segment.parent}/.{segment.name}.1.tmp", f"{segment.parent}/x.safetensors")),
    ]
    printed(capsys, *given, "--cache", "cache")
    printed(capsys, "predict", "out/model", str(pile), "--out", "p.csv", "--device", "cpu")
    assert Path("p.csv").read_text().startswith("path,label")
    assert all(one.is_fifo() for one in made)
    assert not list(tmp_path.rglob("*.lock"))


def test_pipes_in_a_run_folder_are_left_alone(tiny_root, monkeypatch):
    monkeypatch.setenv("SEMISHOT_DATA", str(tiny_root))
    shorten(monkeypatch, "demo")
    made = pipe("run/.config.json.1.tmp")
    main(["train", "--preset", "demo", "--device", "cpu", "--out", "run"])
    assert Path("run/model.safetensors").exists()
    assert made.is_fifo()


def test_a_pipe_as_a_table_or_as_features_is_refused(capsys, tmp_path):
    _, pile = folders(tmp_path)
    np.save("f.npy", np.eye(3))
    pipe("l.csv")
    pipe("l.npy")
    Path("zero.csv").symlink_to("/dev/zero")
    Path("zero.npy").symlink_to("/dev/zero")
    for table in ("l.csv", "zero.csv"):
        line = refusal(
            capsys, "classify", "--labeled", table, "--unlabeled", pile, *DRAWN, "--out", "o"
        )
        assert f"{table} is not a regular file" in line
    for labels in ("l.csv", "zero.csv", "l.npy", "zero.npy"):
        line = refusal(capsys, "classify", "--labeled", "f.npy", "--labels", labels, "--out", "o")
        assert f"{labels} is not a regular file" in line
    line = refusal(capsys, "classify", "--labeled", "l.npy", "--labels", "l.csv", "--out", "o")
    assert "l.npy is not a regular file" in line


def test_a_pipe_in_the_place_of_a_segment_is_no_segment(tmp_path):
    folder = tmp_path / "cache" / ("0" * 32)
    pipe(f"{folder}/x.safetensors")
    pipe(f"{folder}/.x.safetensors.7.tmp")
    cache = EmbeddingCache(tmp_path / "cache", "0" * 32, 3)
    cache.add({b"1" * 32: np.ones(3, np.float32)})
    cache.flush()
    assert EmbeddingCache(tmp_path / "cache", "0" * 32, 3)[b"1" * 32].tolist() == [1, 1, 1]


@pytest.mark.parametrize("ending", ["", "-journal", "-wal", "-shm"])
def test_a_pipe_beside_a_database_is_refused(tmp_path, ending):
    path = tmp_path / "labels.sqlite"
    if ending:
        connect(path).close()
    pipe(f"{path}{ending}")
    with pytest.raises(InputError, match=f"labels.sqlite{ending} is a link or not a regular file"):
        connect(path)
