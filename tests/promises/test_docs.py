"""The documents tell the truth: their code runs, their commands parse, their names and links exist."""

import ast
import functools
import importlib.util
import itertools
import re
import shlex
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import semishot
from refine import test_refine
from semishot import datasets, refine
from semishot.commands import main as entry
from semishot.commands.main import main
from semishot.paper import presets

ROOT = Path(__file__).parents[2]
PAGES = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "CODE_OF_CONDUCT.md"]
FOLDERS = ("docs", "experiments", "benchmarks")
DOCS = [ROOT / page for page in PAGES]
DOCS += [page for folder in FOLDERS for page in sorted((ROOT / folder).rglob("*.md"))]
FENCE = re.compile(r"^```(\w+)(?: title=\"([^\"\n]+)\")?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
IN_QUOTES = re.compile(r"`([^`\n]+)`")
PATH = re.compile(r"(src|tests|docs|benchmarks|examples|experiments)/[\w./]*")
TEST = re.compile(r"((?:\w+/)*test_\w+\.py)(?:::(test_\w+))?")


def blocks(document: Path, language: str) -> list[tuple[str, str]]:
    """Fenced code: the file it belongs to, if it has a title, and its text."""
    found = FENCE.findall(document.read_text(encoding="utf-8"))
    return [(title, code) for kind, title, code in found if kind == language]


def run(code: str, where: str) -> dict[str, object]:
    space: dict[str, object] = {"__name__": "example"}
    exec(compile(code, where, "exec"), space)
    return space


def named(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


# Code blocks


def test_the_example_of_the_readme_runs():
    generator = np.random.default_rng(0)
    kinds = np.tile(np.arange(6), 50)  # three classes, three kinds of strangers
    centers = generator.normal(size=(6, 256))
    X = centers[kinds] + 2 * generator.normal(size=(300, 256))  # noqa: N806
    y = np.where((np.arange(300) < 18) & (kinds < 3), kinds, -1)
    space: dict[str, Any] = {"X": X, "y": y}
    ((_, code),) = blocks(ROOT / "README.md", "python")
    exec(compile(code, "README.md", "exec"), space)
    assert (space["classifier"].predict(X) == np.where(kinds < 3, kinds, -1)).mean() > 0.8


def test_the_example_of_a_method_shows_what_unlabeled_examples_gain(capsys):
    torch.manual_seed(0)
    (code,) = (c for _, c in blocks(ROOT / "docs/adding_a_refiner.md", "python") if "noisy" in c)
    run(code, "docs/adding_a_refiner.md")
    lines = capsys.readouterr().out.split("\n")[:2]
    supervised, refined = (float(line.split("%")[0]) for line in lines)
    assert 20 < supervised < refined <= 100


def test_the_example_of_the_estimator_shows_what_the_pile_buys(capsys):
    codes = [code for _, code in blocks(ROOT / "docs/estimator.md", "python")]
    run("\n".join(codes), "docs/estimator.md")
    message, together, alone, refined, searched = capsys.readouterr().out.strip().split("\n")
    assert re.fullmatch(r"\{'refiner': .+\}", searched)
    assert "one label per class leaves none to check with" in message
    right = [int(re.search(r"(\d+)%", line)[1]) for line in (together, alone, refined)]
    assert right[0] > 90
    assert right[1] + 5 < right[2]


@pytest.fixture
def example_refiners(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The refiner files of docs/adding_a_refiner.md, where `semishot.refine` finds them."""
    names = []
    for title, code in blocks(ROOT / "docs/adding_a_refiner.md", "python"):
        if Path(title).parent == Path("src/semishot/refine"):
            (tmp_path / Path(title).name).write_text(code, encoding="utf-8")
            names.append(Path(title).stem)
    assert names
    monkeypatch.setattr(refine, "__path__", [*refine.__path__, str(tmp_path)])
    importlib.invalidate_caches()
    yield names
    for name in names:
        sys.modules.pop(f"semishot.refine.{name}", None)
        vars(refine).pop(name, None)


def test_a_new_data_set_is_found_and_its_example_runs(tmp_path, monkeypatch):
    """And before it, the example of a pool."""
    (_, pool), (title, code), (_, example) = blocks(ROOT / "docs/datasets.md", "python")
    run(pool, "docs/datasets.md")
    assert Path(title).parent == Path("src/semishot/datasets")
    (tmp_path / Path(title).name).write_text(code, encoding="utf-8")
    monkeypatch.setattr(datasets, "__path__", [*datasets.__path__, str(tmp_path)])
    importlib.invalidate_caches()
    try:
        run(example, "docs/datasets.md")
    finally:
        sys.modules.pop(f"semishot.datasets.{Path(title).stem}", None)
        vars(datasets).pop(Path(title).stem, None)


def test_a_new_refiner_is_found_and_its_examples_and_tests_run(example_refiners):
    assert set(example_refiners) <= set(refine.names())
    ran = 0
    for title, code in blocks(ROOT / "docs/adding_a_refiner.md", "python"):
        if not title.startswith("src/"):
            space = run(code, title or "docs/adding_a_refiner.md")
            tests = [value for name, value in space.items() if name.startswith("test_")]
            assert bool(tests) == title.startswith("tests/")
            for test in tests:
                test()
            ran += 1
    assert ran > len(example_refiners)  # a test for each, and an example


def cases(test) -> Iterator[dict[str, object]]:
    """The arguments of a parametrized test, all combinations."""
    axes = []
    for mark in getattr(test, "pytestmark", []):
        names, values = mark.args
        assert isinstance(names, str)
        axes.append([(names, value) for value in values])
    for combination in itertools.product(*axes):
        yield dict(combination)


def test_new_refiners_keep_the_contract(example_refiners):
    contract = [v for k, v in vars(test_refine).items() if k.startswith("test_contract_")]
    assert len(contract) >= 5
    for name, test in itertools.product(example_refiners, contract):
        for arguments in cases(test):
            test(name, **arguments)


# Commands


def commands() -> list[str]:
    found = []
    for document in DOCS:
        for _, code in blocks(document, "bash"):
            lines = code.replace("\\\n", " ").splitlines()
            found += [line for line in lines if line.startswith("semishot ")]
    return found


def test_commands_in_the_documents_parse(monkeypatch):
    called = []

    def recorder(function):
        @functools.wraps(function)
        def record(*args, **kwargs):
            called.append(function.__name__)

        return record

    def recorded(commands):
        return {
            name: (command[0], recorded(command[1]))
            if isinstance(command, tuple)
            else recorder(command)
            for name, command in commands.items()
        }

    recorders = recorded(entry.all_commands())
    monkeypatch.setattr(entry, "all_commands", lambda: recorders)
    for count, line in enumerate(commands(), 1):
        main(shlex.split(line, comments=True)[1:])
        assert len(called) == count, line


# Names


def has_name(name: str) -> bool:
    """Whether semishot has this `module.attribute`."""
    parts = name.split(".")
    found: object = importlib.import_module("semishot")
    for depth, part in enumerate(parts):
        module = ".".join(["semishot", *parts[: depth + 1]])
        if hasattr(found, "__path__") and importlib.util.find_spec(module) is not None:
            importlib.import_module(module)
        if not hasattr(found, part):
            return False
        found = getattr(found, part)
    return True


def exists(token: str) -> bool | None:
    """Whether what a name in backquotes stands for exists; None if it stands for nothing known."""
    if PATH.fullmatch(token):
        return (ROOT / token).exists()
    if match := TEST.fullmatch(token):
        path, line = ROOT / "tests" / match[1], f"def {match[2]}(" if match[2] else ""
        return path.exists() and line in path.read_text(encoding="utf-8")
    if token.startswith("--preset "):
        return token.removeprefix("--preset ") in presets.PRESETS
    if match := re.fullmatch(r"(\w+)\((\w+)=(.+)\)", token):  # an option of a refiner
        refine.build(match[1], **{match[2]: ast.literal_eval(match[3])})
        return True
    if re.fullmatch(r"[a-z_][a-z_0-9]*(\.\w+)+", token):
        return has_name(token)
    return None


def test_every_name_in_paper_to_code_exists():
    text = (ROOT / "docs/paper_to_code.md").read_text(encoding="utf-8")
    found = {token: exists(token) for token in sorted(set(IN_QUOTES.findall(text)))}
    assert [token for token, there in found.items() if there is False] == []
    other = r"semishot .*|--options NAME VALUE|semishot|tests|renmengye/few-shot-ssl-public"
    assert [t for t, there in found.items() if there is None and not re.fullmatch(other, t)] == []


def test_paper_to_code_covers_equations_tables_figures_appendices_and_ambiguities():
    text = (ROOT / "docs/paper_to_code.md").read_text(encoding="utf-8")
    first_cells = [row.split("|")[1].strip() for row in text.splitlines() if row.startswith("| ")]
    for equation in range(1, 10):
        assert any(cell.startswith(f"Eq. {equation},") for cell in first_cells)
    assert [cell for cell in first_cells if re.fullmatch(r"A\d+", cell)] == [
        f"A{number}" for number in range(1, 21)
    ]
    for kind, numbers in {"Table": "12345", "Figure": "1234567", "Appendix ": "ABCD"}.items():
        held = " ".join(cell for cell in first_cells if cell.startswith(kind))
        assert [n for n in numbers if not re.search(rf"\b{n}\b", held)] == []


def test_paths_in_all_documents_exist():
    pages = ("docs/adding_a_refiner.md", "docs/datasets.md")
    examples = {title for page in pages for title, _ in blocks(ROOT / page, "python")}
    for document in DOCS:
        for token in IN_QUOTES.findall(document.read_text(encoding="utf-8")):
            if PATH.fullmatch(token):  # or a file that the page tells the reader to write
                assert (ROOT / token).exists() or token in examples, (named(document), token)


def test_relative_links_resolve():
    for document in DOCS:
        text = FENCE.sub("", document.read_text(encoding="utf-8"))
        for target in re.findall(r"\]\(([^)]+)\)", text):
            if "://" not in target:
                path = document.parent / target.split("#")[0]
                assert path.exists(), (named(document), target)


def test_targets_of_make_exist():
    targets = re.search(r"^\.PHONY: (.+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    text = "\n".join(document.read_text(encoding="utf-8") for document in DOCS)
    named = set(re.findall(r"(?:`|^ {4})make (\w+)", text, re.MULTILINE))
    assert {"demo", "test", "docs"} <= named <= set(targets[1].split())


def test_changelog_and_citation_have_this_version():
    versions = re.findall(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert versions[0] == semishot.__version__
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"version: {semishot.__version__}\n" in citation


def test_every_extra_is_in_the_table_and_installed_from_the_repository():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    table = set(re.findall(r"^\| `(\w+)` \|", (ROOT / "docs/install.md").read_text(), re.M))
    assert table == set(extras) - {"dev", "docs", "fuzz"}
    for page in [ROOT / "README.md", *ROOT.glob("docs/*.md")]:  # it is not on PyPI
        assert not re.search(r"semishot\[[\w,]+\](?! @ git\+https)", page.read_text()), page.name
