"""The rooms of docs/design.md: imports go only from a later room to an earlier one."""

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
"""They hand on names of the rooms, and nothing imports them."""
LETTERS = {
    "R": ("runs",),
    "U": ("unlabeled",),
    "N": ("classes",),
    "D": ("features", "dimensions"),
    "B": ("images",),
}
"""One meaning each in all files; N is the way where an episode is drawn."""
PUBLISHED_SIGNATURES = {"query_log_probs"}
"""Part of the public mathematics."""
SEEDING = {"torch.manual_seed", "np.random.seed", "random.seed"}
NAMELESS = {"utils", "util", "helpers", "helper", "common", "base", "misc"}
STANDARD = set(sys.stdlib_module_names)
FRAMEWORKS = {"torch", "triton", "safetensors"}


def room_of(path: Path) -> str:
    inside = path.relative_to(PACKAGE)
    return inside.parts[0] if len(inside.parts) > 1 else inside.stem


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def imports(path: Path) -> Iterator[str]:
    """The full name of everything a file imports, wherever in the file it does so."""
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            assert node.module is not None
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def rooms_imported(path: Path) -> Iterator[str]:
    """The rooms of this package that a file imports from; `__version__` and the like are no room."""
    for name in imports(path):
        top, _, rest = name.partition(".")
        if top == "semishot" and not rest.startswith("__"):
            yield rest.split(".")[0]


def outsiders(path: Path) -> set[str]:
    """Top-level packages from outside the standard library and this one."""
    return {name.split(".")[0] for name in imports(path)} - STANDARD - {"semishot"}


def named(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


every_room = pytest.mark.parametrize("room", ORDER)


def files_of(room: str) -> list[Path]:
    return [path for path in FILES if room_of(path) == room]


def test_the_page_lists_the_rooms_there_are():
    assert sorted(ORDER) == sorted({room_of(path) for path in FILES} - DOORS)


def test_the_line_of_a_room_is_its_docstring():
    for room, line, _ in TABLE:
        path = PACKAGE / f"{room}.py"
        path = path if path.exists() else PACKAGE / room / "__init__.py"
        assert (ast.get_docstring(parsed(path)) or "").splitlines()[0] == line, room


@every_room
def test_imports_go_from_a_later_room_to_an_earlier_one(room):
    for path in files_of(room):
        for other in rooms_imported(path):
            assert other in ORDER, f"{named(path)} imports {other}, which is no room"
            assert ORDER.index(other) <= ORDER.index(room), f"{named(path)} imports {other}"


def test_encoders_import_nothing_else_of_the_sorter():
    for path in (PACKAGE / "sorter" / "encoders").glob("*.py"):
        for name in imports(path):
            inside = name.startswith("semishot.sorter.encoders.")
            assert inside or not name.startswith("semishot.sorter"), f"{named(path)} imports {name}"


@pytest.mark.parametrize("room", ["datasets", "refine"])
def test_a_method_knows_no_other_method_and_a_data_set_no_other_data_set(room):
    """Each is one file to add."""
    for path in files_of(room):
        assert room not in set(rooms_imported(path)), named(path)


@pytest.mark.parametrize("room", ["prototypes", "refine"])
def test_mathematics_imports_torch_alone(room):
    for path in files_of(room):
        assert outsiders(path) <= {"torch"}, named(path)
        registry = (
            {"system"} if path.name == "__init__.py" else set()
        )  # imports what a person names
        assert set(rooms_imported(path)) <= {"errors", "prototypes"} | registry, named(path)


@pytest.mark.parametrize("room", WITHOUT_TORCH)
def test_rooms_without_torch_do_not_import_it(room):
    for path in files_of(room):
        assert not outsiders(path) & FRAMEWORKS, named(path)


def test_rooms_without_torch_load_without_torch():
    """Not only no import of their own: nothing they import brings it."""
    names = [path.relative_to(PACKAGE) for room in WITHOUT_TORCH for path in files_of(room)]
    modules = [".".join(name.with_suffix("").parts).removesuffix(".__init__") for name in names]
    assert "torch" not in loaded_by(*modules)


def test_sorting_a_pile_loads_no_paper_no_workers_and_of_training_what_reads_a_fleet():
    loaded = [name.removeprefix("semishot.") for name in loaded_by("sorter.classify")]
    assert not [name for name in loaded if name.startswith(("paper", "workers"))]
    of_training = {name for name in loaded if name.startswith("training.")}
    assert of_training <= {f"training.{name}" for name in ("config", "fleets", "checkpoints")}


HEAVY = {"torch", "sklearn", "scipy", "onnx", "onnxruntime", "jinja2", "pandas"}


def loaded_by(*modules: str) -> set[str]:
    """What importing these loads, in a new interpreter."""
    code = "".join(f"import semishot.{module}\n" for module in modules)
    code = f"{code}import sys; print(*sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return set(found.stdout.split())


def test_the_table_of_commands_begins_without_numpy():
    """And so `--help` does: it is asked for often, and NumPy is a third of the time."""
    loaded = loaded_by("__main__", "commands.table")
    assert "tyro" in loaded
    assert not loaded & (HEAVY | {"numpy", "PIL", "rich.progress", "starlette", "uvicorn"})


@pytest.mark.parametrize("module", ["sorter.classify", "sorter.predict", "label.server"])
def test_a_command_begins_without_what_takes_seconds_to_import(module):
    """And so its first words come at once: what learns is imported when there is something to learn."""
    assert not loaded_by(module) & HEAVY


def test_sorting_features_that_are_cached_loads_torch_and_no_scikit_learn():
    """All that `classify`, `predict` and `label` import later, unless there is an image to encode."""
    later = ("sorter.fitted_pile", "sorter.page", "estimator.trained", "label.judge")
    loaded = loaded_by("sorter.classify", "sorter.predict", "label.server", *later)
    assert loaded & HEAVY == {"torch", "scipy", "jinja2"}
    assert not loaded & {"semishot.estimator.classifier", "scipy.stats", "torch._dynamo"}


def test_every_module_begins_with_one_line_that_says_what_lives_there():
    for path in FILES:
        first, *rest = (ast.get_docstring(parsed(path)) or " ").splitlines()
        assert first[-1] in ".?!:", f"{named(path)}: the first line is not a sentence"
        assert not rest or not rest[0].strip(), f"{named(path)}: the first line runs on"
        assert not first.startswith("This module"), named(path)


def test_no_function_lives_in_a_room_without_a_name():
    for path in FILES:
        assert not {part.removesuffix(".py") for part in path.parts} & NAMELESS, named(path)


def test_no_global_seed_in_library_code():
    """Randomness is an argument: no call of torch.manual_seed, numpy.random.seed or random.seed."""
    for path in FILES:
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.Attribute) and node.attr in ("manual_seed", "seed"):
                assert ast.unparse(node) not in SEEDING, named(path)


def test_settings_that_travel_together_have_a_name():
    """No function takes more than five positional parameters: a request is a dataclass."""
    for path in (path for path in FILES if "fused" not in path.parts):
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.FunctionDef) and node.name not in PUBLISHED_SIGNATURES:
                names = [a.arg for a in (*node.args.posonlyargs, *node.args.args)]
                given = [name for name in names if name not in ("self", "cls")]
                assert len(given) <= 5, f"{named(path)}: {node.name}"


def test_letters_mean_one_thing():
    for path in FILES:
        docstring = ast.get_docstring(parsed(path)) or ""
        letters = re.search(r"Letters: ((?:.|\n)*?)\.(?:\s|$)", docstring)
        for part in re.split(r"[,;]\s", letters[1]) if letters else ():
            letter, _, meaning = part.strip().partition(" ")
            known = LETTERS.get(letter, ("",))
            for_episodes = letter == "N" and meaning == "way"
            if len(meaning) > 1 and not for_episodes:
                assert any(word in meaning for word in known), f"{named(path)}: {part}"
