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
ORDER = [room for room, _, _ in TABLE]
WITHOUT_TORCH = [room for room, _, torch in TABLE if torch == "no"]
DOORS = {"__init__", "__main__", "image_pool", "image_encoders", "next_labels"}
"""They hand on names of the folders, and nothing imports them."""
HEAVY = {"torch", "sklearn", "scipy", "onnx", "onnxruntime", "jinja2", "pandas"}
SEEDING = {"torch.manual_seed", "np.random.seed", "random.seed"}
WRITING = re.compile(r"(?<![\w.])open\(|\.write_bytes\(|sqlite3\.connect\(")


def room_of(path: Path) -> str:
    inside = path.relative_to(PACKAGE)
    return inside.parts[0] if len(inside.parts) > 1 else inside.stem


def files_of(room: str) -> list[Path]:
    return [path for path in FILES if room_of(path) == room]


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def rooms_imported(path: Path) -> Iterator[str]:
    """The folders of this package that a file imports from; `__version__` and the like are none."""
    for node in ast.walk(parsed(path)):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        for name in names:
            top, _, rest = name.partition(".")
            if top == "semishot" and not rest.startswith("__"):
                yield rest.split(".")[0]


def loaded_by(*modules: str) -> set[str]:
    """What importing these loads, in a new interpreter."""
    code = "".join(f"import semishot.{module}\n" for module in modules)
    code = f"{code}import sys; print(*sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return set(found.stdout.split())


def test_the_page_lists_the_folders_there_are_with_their_docstrings():
    assert sorted(ORDER) == sorted({room_of(path) for path in FILES} - DOORS)
    for room, line, _ in TABLE:
        path = PACKAGE / f"{room}.py"
        path = path if path.exists() else PACKAGE / room / "__init__.py"
        assert (ast.get_docstring(parsed(path)) or "").splitlines()[0] == line, room


@pytest.mark.parametrize("room", ORDER)
def test_imports_go_from_a_later_folder_to_an_earlier_one(room):
    for path in files_of(room):
        for other in rooms_imported(path):
            assert other in ORDER, f"{path} imports {other}, which is no folder"
            assert ORDER.index(other) <= ORDER.index(room), f"{path} imports {other}"


@pytest.mark.parametrize("room", ["datasets", "refine"])
def test_a_method_knows_no_other_method_and_a_data_set_no_other_data_set(room):
    """Each is one file to add."""
    for path in files_of(room):
        assert room not in set(rooms_imported(path)), path


def test_folders_without_torch_load_without_torch():
    names = [path.relative_to(PACKAGE) for room in WITHOUT_TORCH for path in files_of(room)]
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
    for path in FILES:
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.Attribute) and node.attr in ("manual_seed", "seed"):
                assert ast.unparse(node) not in SEEDING, path


def test_only_system_opens_files_to_write():
    """So that what is written appears whole."""
    elsewhere = [path for path in FILES if room_of(path) != "system"]
    assert not [p for p in elsewhere if WRITING.search(p.read_text(encoding="utf-8"))]
