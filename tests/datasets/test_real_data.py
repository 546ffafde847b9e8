"""Real photographs, if they are there: prepared, trained on and tested, from the command line."""

import json
import zipfile
from collections import Counter
from pathlib import Path

import pytest

from semishot.commands.main import main
from semishot.datasets.tiered_imagenet import class_list
from support.real_data import REAL_DATA

MINI = REAL_DATA / "mini-imagenet"
EACH = 24
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not MINI.is_dir(), reason=f"the real miniImageNet is not in {MINI}"),
]


def part_of_ilsvrc(source: Path) -> int:
    """A tree of the classes that miniImageNet shares with tieredImageNet; how many there are."""
    names, count = {c.name for c in class_list()}, Counter[str]()
    for path in MINI.glob("*.zip"):
        with zipfile.ZipFile(path) as opened:
            for member in opened.namelist():
                wnid, number = Path(member).stem[:9], Path(member).stem[9:]
                if wnid in names and count[wnid] < EACH:
                    count[wnid] += 1
                    file = source / wnid / f"{wnid}_{int(number)}.JPEG"
                    file.parent.mkdir(parents=True, exist_ok=True)
                    file.write_bytes(opened.read(member))
    return len(count)


@pytest.mark.parametrize("name", ["mini-imagenet", "tiered-imagenet"])
def test_real_photographs_are_prepared_trained_on_and_tested(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SEMISHOT_DATA", "root")
    if name == "mini-imagenet":
        main(["data", "prepare", name, "--source", str(MINI)])
        assert "64/16/20 train/val/test classes, 60,000 images 3x84x84" in capsys.readouterr().out
    else:
        classes = part_of_ilsvrc(tmp_path / "ilsvrc")
        main(["data", "prepare", name, "--source", "ilsvrc", "--partial"])
        shown = capsys.readouterr().out
        assert f"{classes * EACH:,} images 3x84x84" in shown
        assert f"partial: {608 - classes} classes are missing" in shown
    shape = ["--way", "2", "--shot", "1", "--query", "2", "--unlabeled", "3"]
    train = ["train", "--dataset", name, "--updates", "2", "--filters", "4", "--out", "run"]
    main([*train, *shape, "--labeled-fraction", "0.5", "--device", "cpu"])
    capsys.readouterr()
    main(["evaluate", "--model", "run", "--episodes", "10", *shape, "--json"])
    (record,) = json.loads(capsys.readouterr().out)
    assert (record["dataset"], record["episodes"]) == (name, 10)
    assert 0 <= record["accuracy"] <= 1
