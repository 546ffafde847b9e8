"""The rooms of DESIGN.md: an import may only point down the list, and each room knows only its own."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "src" / "semishot"
FILES = sorted(PACKAGE.rglob("*.py"))

ROOMS = [
    "__main__",
    "cli",
    "appendix_commands",
    "own_image_commands",
    "endings",
    "doctor",
    "export",
    "export_check",
    "predict",
    "classify",
    "out_folder",
    "pile_report",
    "sorting",
    "journal",
    "predictions",
    "safe_names",
    "feature_files",
    "embed_elsewhere",
    "embed",
    "embedding_cache",
    "own_files",
    "spread",
    "ablations",
    "masks",
    "reproduce",
    "plan",
    "ray_cluster",
    "engine",
    "sorted_page",
    "report",
    "results",
    "scenes",
    "show",
    "plots",
    "mask_tables",
    "table5",
    "baseline_tables",
    "tables",
    "paper",
    "next_labels",
    "classifier",
    "verdict",
    "calibration",
    "pile",
    "image_encoders",
    "photo_encoders",
    "evaluate",
    "baselines",
    "pretrain",
    "train",
    "trained",
    "follow",
    "board",
    "validation",
    "chunks",
    "update",
    "model",
    "encoder",
    "fused",
    "augment",
    "checkpoints",
    "fleet_table",
    "config",
    "refine",
    "prototypes",
    "datasets",
    "episodes",
    "splits",
    "pool_builder",
    "image_pool",
    "archives",
    "framing",
    "pictures",
    "pickles",
    "progress",
    "memory",
    "log",
    "npy",
    "files",
    "locks",
    "seals",
    "errors",
    "__init__",
]
"""From top to bottom; a folder is one room. A new file gets its place here before it gets imports."""

NAMELESS = {"utils", "util", "helpers", "helper", "common", "base", "misc"}
STANDARD = set(sys.stdlib_module_names)
MATHEMATICS = {"prototypes", "refine"}
DATA = {
    "image_pool",
    "splits",
    "episodes",
    "datasets",
    "archives",
    "framing",
    "pictures",
    "pickles",
}
WITHOUT_TORCH = {
    *DATA,
    "sorted_page",
    "report",
    "results",
    "plots",
    "show",
    "mask_tables",
    "baseline_tables",
    "tables",
    "paper",
    "config",
    "cli",
    "appendix_commands",
    *("own_image_commands", "own_files", "predictions", "sorting", "journal"),
    "fleet_table",
    "log",
    "files",
    "locks",
    "npy",
    "seals",
    "endings",
    "errors",
    "progress",
}
FRAMEWORKS = {"torch", "triton", "safetensors"}
MODEL_ROOMS = {
    "model",
    "encoder",
    "fused",
    "refine",
    "prototypes",
    "train",
    "trained",
    "follow",
    "board",
    "validation",
    "chunks",
    "update",
    "evaluate",
    *("export", "export_check", "next_labels", "classifier", "verdict", "calibration", "pile"),
    *("image_encoders", "photo_encoders"),
}


def room_of(path: Path) -> str:
    inside = path.relative_to(PACKAGE)
    return inside.parts[0] if len(inside.parts) > 1 else inside.stem


def imports(path: Path) -> Iterator[str]:
    """The full name of everything a file imports, wherever in the file it does so."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            assert node.module is not None
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def rooms_imported(path: Path) -> Iterator[str]:
    """The rooms of this package that a file imports from."""
    for name in imports(path):
        parts = name.split(".")
        if parts[0] == "semishot":
            second = parts[1] if len(parts) > 1 else ""
            there = (PACKAGE / f"{second}.py").exists() or (
                PACKAGE / second / "__init__.py"
            ).exists()
            yield second if second and there else "__init__"


def outsiders(path: Path) -> set[str]:
    """Top-level packages from outside the standard library and this one."""
    return {name.split(".")[0] for name in imports(path)} - STANDARD - {"semishot"}


def named(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


every_file = pytest.mark.parametrize("path", FILES, ids=named)


@every_file
def test_every_file_has_a_room(path):
    assert room_of(path) in ROOMS, f"give {named(path)} its place in ROOMS and in docs/design.md"


def test_every_room_exists_once():
    assert sorted(ROOMS) == sorted({room_of(path) for path in FILES})


@every_file
def test_imports_point_down(path):
    above = room_of(path)
    if above == "__init__":  # it names what the package offers, and loads it when asked
        return
    for below in rooms_imported(path):
        if below == above:
            continue
        assert ROOMS.index(above) < ROOMS.index(below), f"{named(path)} imports {below}"


@pytest.mark.parametrize("room", ["datasets", "refine"])
def test_a_method_knows_no_other_method_and_a_data_set_no_other_data_set(room):
    """Each is one file to add."""
    for path in (p for p in FILES if room_of(p) == room):
        assert room not in set(rooms_imported(path)), named(path)


@pytest.mark.parametrize("room", sorted(MATHEMATICS))
def test_mathematics_imports_torch_alone(room):
    for path in (p for p in FILES if room_of(p) == room):
        assert outsiders(path) <= {"torch"}, named(path)
        assert set(rooms_imported(path)) <= {"errors", "prototypes"}, named(path)


@pytest.mark.parametrize("room", sorted(DATA))
def test_data_knows_no_model(room):
    for path in (p for p in FILES if room_of(p) == room):
        assert not outsiders(path) & FRAMEWORKS, named(path)
        assert not set(rooms_imported(path)) & MODEL_ROOMS, named(path)


@pytest.mark.parametrize("room", sorted(WITHOUT_TORCH))
def test_no_torch_above_or_beside_the_data(room):
    for path in (p for p in FILES if room_of(p) == room):
        assert not outsiders(path) & FRAMEWORKS, named(path)


def test_data_tables_and_the_command_load_without_torch():
    """Not only no import of their own: nothing they import brings it."""
    rooms = sorted(WITHOUT_TORCH)
    code = "import sys\n" + "".join(f"import semishot.{room}\n" for room in rooms)
    code += "sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


@every_file
def test_every_module_begins_with_one_line_that_says_what_lives_there(path):
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    assert docstring, f"{named(path)} has no docstring"
    first, *rest = docstring.splitlines()
    assert first[-1] in ".?!:", f"{named(path)}: the first line is no sentence"
    assert not rest or not rest[0].strip(), f"{named(path)}: the first line runs on"
    assert not first.startswith("This module")


@every_file
def test_no_function_lives_in_a_room_without_a_name(path):
    assert not {part.removesuffix(".py") for part in path.parts} & NAMELESS


@every_file
def test_no_global_seed_in_library_code(path):
    """Randomness is an argument: no call of torch.manual_seed, numpy.random.seed or random.seed."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            assert called not in {"torch.manual_seed", "np.random.seed", "random.seed"}, named(path)
