"""The folders of docs/design.md: imports go only from a later one to an earlier one."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "semishot"
FILES = sorted(PACKAGE.rglob("*.py"))
PAGE = (ROOT / "docs" / "design.md").read_text(encoding="utf-8")
TABLE = re.findall(r"(?m)^\| `(\w+)` \| (.+) \| (yes|no) \|$", PAGE)
ORDER = [folder for folder, _, _ in TABLE]
REEXPORTS = {"__init__", "__main__", "episodes", "image_pool", "image_encoders", "next_labels"}
HEAVY = {"torch", "sklearn", "scipy", "onnx", "onnxruntime", "jinja2", "pandas"}
WRITING = re.compile(r"(?<![\w.])open\(|\.write_bytes\(|sqlite3\.connect\(")


def folder_of(path: Path) -> str:
    inside = path.relative_to(PACKAGE)
    return inside.parts[0] if len(inside.parts) > 1 else inside.stem


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def imported_folders(path: Path) -> Iterator[str]:
    """The folders of this package that a file imports from; `__version__` and the like are none."""
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            module = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
            for name in (f"{module}{alias.name}" for alias in node.names):
                if name.startswith("semishot.") and not name.startswith("semishot.__"):
                    yield name.split(".")[1]


def loaded_by(*modules: str) -> set[str]:
    """What importing these loads, in a new interpreter."""
    code = f"import {', '.join(f'semishot.{m}' for m in modules)}, sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return set(done.stdout.split())


def test_the_page_lists_the_folders_with_their_docstrings():
    assert sorted(ORDER) == sorted({folder_of(path) for path in FILES} - REEXPORTS)
    for folder, line, _ in TABLE:
        path = PACKAGE / f"{folder}.py"
        path = path if path.exists() else PACKAGE / folder / "__init__.py"
        assert (ast.get_docstring(parsed(path)) or "").splitlines()[0] == line, folder


def test_imports_go_from_a_later_folder_to_an_earlier_one():
    for path in FILES:
        if (folder := folder_of(path)) not in REEXPORTS:
            for other in imported_folders(path):
                assert ORDER.index(other) <= ORDER.index(folder), f"{path} imports {other}"


@pytest.mark.parametrize("folder", ["datasets", "refine"])
def test_a_method_knows_no_other_method_and_a_data_set_no_other_data_set(folder):
    """Each is one file to add."""
    for path in (path for path in FILES if folder_of(path) == folder):
        assert folder not in set(imported_folders(path)), path


def test_folders_without_torch_load_without_torch():
    without = {folder for folder, _, torch in TABLE if torch == "no"}
    names = [path.relative_to(PACKAGE) for path in FILES if folder_of(path) in without]
    modules = [".".join(name.with_suffix("").parts).removesuffix(".__init__") for name in names]
    assert "torch" not in loaded_by(*modules)


def test_help_begins_without_numpy():
    """It is asked for often, and NumPy is a third of the time."""
    loaded = loaded_by("__main__", "commands.sort", "commands.report", "commands.reproduce")
    assert "tyro" in loaded
    assert not loaded & (HEAVY | {"numpy", "PIL", "rich.progress", "starlette", "uvicorn"})


@pytest.mark.parametrize("module", ["sorter.classify", "sorter.predict", "label.server"])
def test_a_command_begins_without_what_takes_seconds_to_import(module):
    """And so its first words come at once: what learns is imported when there is something to learn."""
    assert not loaded_by(module) & HEAVY


def test_no_two_classes_share_a_name():
    """But for `Refiner`: the file name of a method is its name."""
    classes = [n.name for p in FILES for n in ast.walk(parsed(p)) if isinstance(n, ast.ClassDef)]
    assert {name for name in classes if classes.count(name) > 1} <= {"Refiner"}


def test_no_global_seed_in_library_code():
    """Randomness is an argument: no call of torch.manual_seed, numpy.random.seed or random.seed."""
    seeding = re.compile(r"(?<!\w)(torch\.manual_seed|(np\.)?random\.seed)\(")
    assert not [p for p in FILES if seeding.search(p.read_text(encoding="utf-8"))]


def test_only_system_opens_files_to_write():
    """So that what is written appears whole."""
    elsewhere = [path for path in FILES if folder_of(path) != "system"]
    assert not [p for p in elsewhere if WRITING.search(p.read_text(encoding="utf-8"))]
