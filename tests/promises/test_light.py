"""What is not needed: torch by the user's half, Linux by its commands, a clone by an installed wheel."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from support.own_images import folders

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "semishot"
TESTS = ROOT / "tests"
PATHS = [TESTS / "support" / "without_torch", ROOT / "src", TESTS]
WITHOUT_TORCH = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, PATHS))}
SORT = "classify --labeled labeled --unlabeled pile --out out --encoder"
NEEDING_TORCH = [
    *("train", "evaluate --model pretrained:omniglot", "pick run out.safetensors", "demo"),
    *("reproduce table1", "reproduce table5", "reproduce figure-masks", "reproduce ablations"),
    "show episode --model pixels --dataset glyphs",
]
REFUSED = """
import sys
from semishot.commands.main import main
for command in sys.argv[1:]:
    try:
        main(command.split())
    except SystemExit as end:
        assert end.code == 2, command
"""


def done(words: list, folder: Path, **more) -> str:
    """What a process prints."""
    ended = subprocess.run(
        list(map(str, words)), cwd=folder, capture_output=True, text=True, check=False, **more
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def started(words: list, folder: Path, **more) -> str:
    """The first line that a server prints."""
    with subprocess.Popen(
        list(map(str, words)), cwd=folder, stdout=subprocess.PIPE, text=True, **more
    ) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        process.terminate()
    assert process.returncode == 143
    return line


def test_what_needs_torch_says_so_in_one_line(tmp_path):
    """And writes nothing."""
    folders(tmp_path)
    words = [sys.executable, "-c", REFUSED, *NEEDING_TORCH]
    ended = subprocess.run(
        words, cwd=tmp_path, env=WITHOUT_TORCH, capture_output=True, text=True, check=True
    )
    told = "semishot: `semishot {}` needs PyTorch: pip install 'semishot[train]'"
    assert ended.stderr.splitlines() == [told.format(c.split()[0]) for c in NEEDING_TORCH]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["labeled", "pile"]


def test_a_refiner_of_the_estimator_needs_torch_and_says_so(tmp_path):
    code = "import semishot; semishot.PrototypeClassifier('oslo').fit([[0, 1], [1, 0]], [0, 1])"
    words = [sys.executable, "-c", code]
    ended = subprocess.run(words, env=WITHOUT_TORCH, capture_output=True, text=True, check=False)
    assert ended.stderr.endswith("refiner='oslo' needs PyTorch: pip install 'semishot[train]'\n")


def test_commands_of_the_users_half_need_neither_torch_nor_linux(tmp_path):
    labeled, pile = folders(tmp_path)
    before = sorted(pile.rglob("*.png"))
    semishot = [sys.executable, "-m", "support.like_windows"]
    drawn = ["--encoder", "omniglot", "--device", "cpu"]
    commands = {
        f"classify --labeled {labeled} --unlabeled {pile} --out out --apply move": "24 files moved",
        f"predict out {labeled}": "labeled/circle/0.png,circle",
        "undo out": "24 files moved back",
        "export out": "model.onnx: 3 classes",
        f"results --folder {ROOT / 'results'} --out page.md": "page.md",
        f"report {ROOT / 'results'} -o report.html": "report.html",
        "data list": "glyphs",
        "doctor": "torch: not installed",
    }
    for command, text in commands.items():
        more = drawn if command.startswith("classify") else []
        assert text in done([*semishot, *command.split(), *more], tmp_path, env=WITHOUT_TORCH)
    assert sorted(pile.rglob("*.png")) == before
    browser = {**WITHOUT_TORCH, "BROWSER": "true"}
    assert started([*semishot, "label", pile, *drawn], tmp_path, env=browser).startswith("http://")


def test_a_report_without_torch_says_why_it_shows_no_episodes(tiny_root, tmp_path):
    """Its data are prepared, and its model is there."""
    (tmp_path / "data").mkdir()
    for name in ("omniglot", "glyphs"):
        (tmp_path / "data" / name).symlink_to(tiny_root / "glyphs")
    results = ROOT / "results" / "omniglot" / "table1-ren2018.json"
    words = ["-m", "semishot", "report", results, "-o", "r.html", "--data-root", "data"]
    done([sys.executable, *words], tmp_path, env=WITHOUT_TORCH)
    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert "No episodes of omniglot: drawing them needs PyTorch" in page


def test_every_file_of_the_package_is_in_the_wheel():
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    packed = {f for pattern in declared["package-data"]["semishot"] for f in PACKAGE.glob(pattern)}
    ours = {f for f in PACKAGE.rglob("*.*") if f.is_file() and f.suffix not in (".py", ".pyc")}
    assert ours == packed


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_tests_of_the_users_half_pass_without_torch():
    words = [sys.executable, "-m", "pytest", "-n", "2", "-p", "no:cacheprovider"]
    words += ["--deselect", "tests/label/test_page.py"]
    printed = done([*words, TESTS], ROOT, env=WITHOUT_TORCH)
    passed, skipped = map(int, re.findall(r"(\d+) passed, (\d+) skipped", printed)[0])
    assert skipped < passed / 10, "what asks for torch is skipped: that must stay the exception"


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_built_wheel_works_in_an_empty_environment(tmp_path):
    """Away from the sources. Its dependencies are downloaded, which some machines may not."""
    labeled, pile = folders(tmp_path)
    clean = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
    files = done(["git", "ls-files", "src", "pyproject.toml", "README.md", "LICENSE"], ROOT).split()
    for name in files:
        copy = tmp_path / "source" / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes((ROOT / name).read_bytes())
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    done([*pip, "wheel", "--no-deps", "--wheel-dir", "dist", "./source"], tmp_path, env=clean)
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    done([sys.executable, "-m", "venv", "--without-pip", "venv"], tmp_path)
    bin_ = tmp_path / "venv" / ("Scripts" if sys.platform == "win32" else "bin")
    install = [*pip, "--python", bin_ / "python", "install", "-c", ROOT / "constraints.txt"]
    done([*install, f"{wheel}[photos,label]"], tmp_path, env=clean)
    semishot = bin_ / "semishot"
    assert "torch: not installed" in done([semishot, "doctor"], tmp_path, env=clean)
    for encoder in ("omniglot", "photos"):
        sort = ["--labeled", labeled, "--unlabeled", pile, "--encoder", encoder, "--out", encoder]
        assert "3 classes" in done([semishot, "classify", *sort], tmp_path, env=clean)
        assert done([semishot, "predict", encoder, pile], tmp_path, env=clean).count("\n") == 25
    report = [semishot, "report", ROOT / "results", "-o", "report.html"]
    done(report, tmp_path, env=clean)
    label = [semishot, "label", pile, "--encoder", "omniglot", "--no-browser"]
    assert started(label, tmp_path, env=clean).startswith("http://")
