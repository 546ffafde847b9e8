"""A malformed file, whatever is in it, gives one line and exit code 2."""

import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

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
ODD = [None, True, 0, -1, 0.5, 1e308, 10**30, [], {}, [None], "", "../x", "a\nb", "\x1b[2J"]
CASES = int(os.environ.get("FUZZ_CASES", "12"))
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


READERS: list[tuple[str, Sequence[bytes], list[str]]] = [
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
]
"""A file, malformed contents, and the command that reads it."""
CHANGED = [(file, words) for file, _, words in READERS if not file.endswith(".sqlite")]
by_file = {"ids": lambda value: value if isinstance(value, str) else ""}


@pytest.mark.parametrize(("file", "contents", "arguments"), READERS, **by_file)
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


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("file", "arguments"), CHANGED, **by_file)
def test_a_changed_file_is_read_or_refused(capsys, here, file, arguments):
    """Random changes of a valid file: no traceback, at most one line. `make chaos` tries more of them."""
    valid = Path(file).read_bytes()
    for case in range(CASES):
        Path(file).write_bytes(changed(valid, Random(f"{file} {case}")))
        code: object = 0
        try:
            main(arguments)
        except SystemExit as end:
            code = end.code
        assert code in (None, 0, 1, 2), case
        assert "Traceback" not in capsys.readouterr().err, case
        shutil.rmtree("o", ignore_errors=True)


def changed(data: bytes, rng: Random) -> bytes:
    """Bytes flipped, cut, repeated or made huge; or a value of JSON replaced by an odd one."""
    if data[:1] in (b"{", b"[") and rng.random() < 0.8:
        return json.dumps(with_odd_value(json.loads(data), rng)).encode()
    content = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 8))):
        index = rng.randrange(len(content) + 1)
        match rng.randrange(5):
            case 0:
                content[index : index + 1] = bytes([rng.randrange(256)])
            case 1:
                del content[index:]
            case 2:
                del content[index : index + rng.randrange(1, 40)]
            case 3:
                content[index:index] = content[: rng.randrange(1, 60)]
            case 4:
                content[index : index + 8] = b"\xff" * 8
    return bytes(content)


def with_odd_value(value: Any, rng: Random) -> Any:
    if not isinstance(value, dict | list) or not value or rng.random() < 0.1:
        return rng.choice(ODD)
    key = rng.choice(list(value) if isinstance(value, dict) else range(len(value)))
    value[key] = with_odd_value(value[key], rng)
    return value


def test_odd_words_on_the_command_line_give_one_line(capsys, here):
    for words in (
        ["report", "x" * 300],
        ["results", "--folder", "results", "--out", ""],
        ["undo", "undo.json/x"],
        ["train", "--filters", 10**8, "--device", "cpu", "--data-root", "data"],
    ):
        assert refusal(capsys, *words)
