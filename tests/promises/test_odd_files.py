"""A malformed file, whatever is in it, gives one line and exit code 2."""

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from semishot.commands.main import main
from support.commands import refusal
from support.own_images import DRAWN, folders
from support.presets import shorten
from support.records import record

DEEP = b"[" * 100_000
NO_TEXT = b"\xff\xfe\x00"
JSON = (b"", b"{", b"3", b"[3]", b'{"a": 1}', NO_TEXT, DEEP, b"1" * 5000)
BINARY = (b"", b"\x00", NO_TEXT * 100, b"{" * 1000)
SORT = ["classify", *DRAWN, "--out", "out", "--unlabeled", "pile", "--labeled"]


@pytest.fixture(scope="module")
def whole(tmp_path_factory, tiny_root) -> Path:
    """A folder with a file of each kind, all of them readable."""
    root = tmp_path_factory.mktemp("whole")
    folders(root, pile=2, strangers=2)
    shutil.copytree(tiny_root, root / "data")
    np.save(root / "f.npy", np.eye(4, dtype=np.float32))
    (root / "l.csv").write_text("label\na\na\nb\nb\n")
    (root / "t.csv").write_text("path,label\nlabeled/cross/0.png,a\nlabeled/circle/0.png,b\n")
    (root / "results/omniglot").mkdir(parents=True)
    (root / "results/omniglot/table1-ren2018.json").write_text(json.dumps([record()]))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        shorten(patch, "demo")
        train = ["train", "--preset", "demo", "--data-root", "data", "--device", "cpu"]
        main([*train, "--out", "run"])
        main([*SORT, "labeled", "--apply", "copy"])
    return root


@pytest.fixture
def here(whole, tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(shutil.copytree(whole, tmp_path / "here"))
    return tmp_path / "here"


@pytest.mark.parametrize(
    ("file", "contents", "arguments"),
    [
        ("data/glyphs/pool.json", JSON, ["data", "verify", "glyphs", "--data-root", "data"]),
        ("data/glyphs/images.npy", BINARY, ["data", "verify", "glyphs", "--data-root", "data"]),
        ("run/config.json", JSON, ["train", "--out", "run", "--data-root", "data"]),
        ("run/model.safetensors", BINARY, ["evaluate", "--model", "run", "--data-root", "data"]),
        ("results/omniglot/table1-ren2018.json", JSON, ["report", "results"]),
        (
            "results/omniglot/table1-ren2018.json",
            JSON,
            ["results", "--folder", "results", "--out", "page.md"],
        ),
        ("out/model/encoder.json", JSON, ["predict", "out/model", "pile", "--device", "cpu"]),
        ("out/model/classifier.safetensors", BINARY, ["predict", "out/model", "pile"]),
        ("out/undo.json", JSON, ["undo", "out"]),
        ("out/labels.sqlite", BINARY[2:], [*SORT, "labeled"]),
        ("f.npy", BINARY, ["classify", "--labeled", "f.npy", "--labels", "l.csv", "--out", "o"]),
        (
            "l.csv",
            (b"", NO_TEXT),
            ["classify", "--labeled", "f.npy", "--labels", "l.csv", "--out", "o"],
        ),
        ("t.csv", (b"", b"a,b\n1,2\n", b'"', NO_TEXT), [*SORT, "t.csv"]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_malformed_file_gives_one_line(capsys, here, file, contents, arguments):
    if not file.endswith((".csv", ".sqlite")):  # half a table is a table
        whole = Path(file).read_bytes()
        contents = (*contents, whole[: len(whole) // 2])
    for content in contents:
        Path(file).write_bytes(content)
        assert refusal(capsys, *arguments), content[:20]


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("f.npy", ["classify", "--labeled", "f.npy", "--labels", "l.csv", "--out", "o"]),
        ("l.csv", ["classify", "--labeled", "f.npy", "--labels", "l.csv", "--out", "o"]),
        ("t.csv", [*SORT, "t.csv"]),
        ("out/undo.json", ["undo", "out"]),
        (
            "results/omniglot/table1-ren2018.json",
            ["results", "--folder", "results", "--out", "page.md"],
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_a_pipe_or_a_device_in_its_place_is_not_opened(capsys, here, name, arguments, kind):
    Path(name).unlink()
    os.mkfifo(name) if kind == "pipe" else Path(name).symlink_to("/dev/zero")
    assert "is not a regular file" in refusal(capsys, *arguments)


def test_odd_words_on_the_command_line_give_one_line(capsys, here):
    for words in (
        ["report", "x" * 300],
        ["results", "--folder", "results", "--out", ""],
        ["undo", "undo.json/x"],
        ["train", "--filters", 10**8, "--device", "cpu", "--data-root", "data"],
    ):
        assert refusal(capsys, *words)
