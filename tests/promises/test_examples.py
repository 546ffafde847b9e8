"""The worked examples run as they stand, and show what their pages say."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Runs an example in an empty folder; the data set is drawn once."""
    root = tmp_path_factory.mktemp("data")

    def run(name: str, folder: Path, *arguments: str) -> str:
        source = str(ROOT / "src")
        known = os.environ | {"SEMISHOT_DATA": str(root), "OMP_NUM_THREADS": "1"}
        known["PYTHONPATH"] = os.pathsep.join([source, os.environ.get("PYTHONPATH", "")])
        command = [sys.executable, "-W", "error", str(ROOT / "examples" / name), *arguments]
        done = subprocess.run(command, cwd=folder, env=known, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def numbers(text: str) -> list[float]:
    return [float(number) for number in re.findall(r"(\d+\.\d)%", text)]


def shown_on(page: str) -> str:
    """What a page says that the example prints."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    return re.findall(r"```text\n(.*?)```", text, re.DOTALL)[0]


def same_but_for_rounding(printed: str, shown: str) -> bool:
    """The same words, and shares of some hundred examples within a few examples of each other."""
    words = [re.sub(r"\d+\.\d%", "%", text).split() for text in (printed, shown)]
    pairs = zip(numbers(printed), numbers(shown), strict=True)
    return words[0] == words[1] and all(abs(a - b) <= 2 for a, b in pairs)


def test_a_method_of_ones_own(run, tmp_path):
    printed = run("own_method.py", tmp_path)
    alone, _, soft, soft_with_distractors, own, own_with_distractors, members = numbers(printed)[:7]
    assert alone < own < soft
    assert soft_with_distractors + 1 < own_with_distractors
    assert members > 90
    assert same_but_for_rounding(printed, shown_on("adding_a_refiner.md"))


def test_a_loop_of_ones_own(run, tmp_path):
    printed = run("own_loop.py", tmp_path)
    alone, refined = numbers(printed)
    assert refined > alone + 1
    assert alone > 60  # chance is 20
    assert same_but_for_rounding(printed, shown_on("example_own_loop.md"))
