"""One door: only `system/` opens files, so that each is checked in the same way.

Outside of `system/` no name that opens a path may appear, called or passed on, under whatever alias. What
can also take bytes, such as `Image.open`, may be called on an `io.BytesIO(...)` written in the call.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "src" / "semishot"
FILES = sorted(p for p in PACKAGE.rglob("*.py") if p.parent != PACKAGE / "system")
METHODS = {"open", "read_text", "read_bytes", "write_text", "write_bytes", "tofile", "touch"}
"""Of `Path` and the like, on anything: `path.open`, `Path.write_bytes`."""
OPENING = {
    *(
        "builtins.open",
        "io.open",
        "io.FileIO",
        "io.open_code",
        "os.open",
        "os.fdopen",
        "codecs.open",
    ),
    *("os.mkfifo", "os.mknod", "mmap.mmap", "fileinput.input", "linecache.getline"),
    *("gzip.GzipFile", "bz2.BZ2File", "lzma.LZMAFile", "shelve.Shelf", "dbm.dumb"),
    *("tarfile.TarFile", "tarfile.is_tarfile", "zipfile.is_zipfile", "zipfile.PyZipFile"),
    *("sqlite3.connect", "sqlite3.Connection", "safetensors.safe_open", "numpy.memmap"),
    *(
        "numpy.fromfile",
        "numpy.loadtxt",
        "numpy.genfromtxt",
        "numpy.savez",
        "numpy.savez_compressed",
    ),
    *(
        "numpy.savetxt",
        "numpy.lib.format.open_memmap",
        "torch.jit.load",
        "torch.UntypedStorage.from_file",
    ),
    *("torch.from_file", "safetensors.torch.load_file", "safetensors.torch.save_file"),
    *("safetensors.numpy.load_file", "safetensors.numpy.save_file", "json.load", "pickle.load"),
    *(
        "onnx.load",
        "onnx.load_model",
        "onnx.save",
        "shutil.copyfile",
        "shutil.copy",
        "shutil.copy2",
    ),
    *("shutil.copytree", "shutil.move", "shutil.unpack_archive", "shutil.make_archive"),
    *("logging.FileHandler", "os.sendfile", "os.truncate"),
}
"""They open a path by themselves, or have no other use."""
ON_BYTES = {
    *("PIL.Image.open", "numpy.load", "numpy.save", "torch.load", "torch.save", "zipfile.ZipFile"),
    *("tarfile.open", "InferenceSession"),
}
"""They take a path or bytes: only in a call, and on bytes that can be seen there."""
HARMLESS = {"webbrowser.open"}


class Names(ast.NodeVisitor):
    """What the names in a module stand for."""

    def __init__(self) -> None:
        self.full: dict[str, str] = {}

    def visit_Import(self, node: ast.Import) -> None:
        for one in node.names:
            self.full[one.asname or one.name.partition(".")[0]] = (
                one.name if one.asname else one.name.partition(".")[0]
            )

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        for one in node.names:
            self.full[one.asname or one.name] = f"{node.module}.{one.name}"

    def of(self, node: ast.AST) -> str:
        """The full name of an expression; empty if it has none."""
        if isinstance(node, ast.Name):
            return self.full.get(node.id, "builtins.open" if node.id == "open" else node.id)
        if isinstance(node, ast.Attribute):
            return f"{self.of(node.value)}.{node.attr}"
        return ""


def opened(source: str) -> Iterator[tuple[int, str]]:
    """The lines of a module on which a path could be opened, and by what."""
    tree, names = ast.parse(source), Names()
    names.visit(tree)
    of_bytes = {
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and on_bytes(tree, node, names)
    }
    allowed = {node.func for node in of_bytes} | set(annotations(tree))
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            for one in node.names:
                if f"{node.module}.{one.name}" in OPENING:
                    yield node.lineno, f"{node.module}.{one.name}"
        if not isinstance(node, ast.Name | ast.Attribute) or not isinstance(node.ctx, ast.Load):
            continue
        full = names.of(node)
        ours = full.startswith("semishot.")
        last = full.rpartition(".")[2]
        method = isinstance(node, ast.Attribute) and node.attr in METHODS and not ours
        known = full in OPENING or full in ON_BYTES or last in ON_BYTES
        if (known or method) and node not in allowed and full not in HARMLESS:
            yield node.lineno, full.removeprefix("builtins.").lstrip(".")


def on_bytes(tree: ast.Module, call: ast.Call, names: Names) -> bool:
    """Whether a call of one of ON_BYTES gets bytes: a BytesIO, or an argument that is declared as bytes."""
    full = names.of(call.func)
    if full not in ON_BYTES and full.rpartition(".")[2] not in ON_BYTES:
        return False
    if full in ("numpy.save", "torch.save"):
        given = call.args[1:2] if full == "torch.save" else call.args[:1]
    else:
        given = call.args[:1]
    if not given:
        return False
    if isinstance(given[0], ast.Call):
        return names.of(given[0].func) == "io.BytesIO"
    return isinstance(given[0], ast.Name) and given[0].id in bytes_around(tree, call, names)


def bytes_around(tree: ast.Module, call: ast.Call, names: Names) -> set[str]:
    """Names that are bytes in the function around a call: parameters, and variables made by io.BytesIO()."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef) or call not in set(ast.walk(node)):
            continue
        assigned = [one for one in ast.walk(node) if isinstance(one, ast.Assign)]
        changed = {t.id for one in assigned for t in one.targets if isinstance(t, ast.Name)}
        every = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        declared = {a.arg for a in every if a.annotation and ast.unparse(a.annotation) == "bytes"}
        found |= declared - changed
        for name in changed:
            values = [
                one.value
                for one in assigned
                if any(isinstance(t, ast.Name) and t.id == name for t in one.targets)
            ]
            if all(isinstance(v, ast.Call) and names.of(v.func) == "io.BytesIO" for v in values):
                found.add(name)
    return found


def annotations(tree: ast.Module) -> Iterator[ast.AST]:
    """All names that are only the type of something: `opened: zipfile.ZipFile`."""
    for one in ast.walk(tree):
        for kind in (getattr(one, "annotation", None), getattr(one, "returns", None)):
            yield from ast.walk(kind) if isinstance(kind, ast.AST) else ()


def test_nothing_but_system_opens_a_path():
    found = [
        f"{path.relative_to(PACKAGE)}:{line}: {what}"
        for path in FILES
        for line, what in opened(path.read_text(encoding="utf-8"))
    ]
    assert not found, f"{found}: use semishot.system.open_files, .files, .npy or .databases"


@pytest.mark.parametrize(
    "source",
    [
        "open('x')",
        "import io\nio.open('x')",
        "from io import open as reader\nreader('x')",
        "import os\nos.open('x', 0)",
        "import os as system\nsystem.fdopen(3)",
        "from os import open",
        "from pathlib import Path\nPath('x').read_text()",
        "from pathlib import Path\nf = Path.write_bytes",
        "path.open()",
        "self.folder.joinpath('x').read_bytes()",
        "list(map(open, names))",
        "import numpy as np\nnp.load(path)",
        "import numpy as np\nnp.save(path, array)",
        "import numpy as np\nnp.memmap(path)",
        "import numpy\nnumpy.lib.format.open_memmap(path)",
        "from numpy.lib.format import open_memmap as mapped\nmapped(path)",
        "from PIL import Image\nImage.open(path)",
        "from PIL import Image as I\nI.open(path)",
        "import PIL.Image\nPIL.Image.open(path)",
        "from zipfile import ZipFile\nZipFile(path)",
        "from zipfile import ZipFile as Z\nwith Z(path) as opened: pass",
        "import zipfile\nopening = zipfile.ZipFile",
        "import tarfile\ntarfile.open(path)",
        "import tarfile\ntarfile.TarFile(path)",
        "import sqlite3\nsqlite3.connect(path)",
        "from sqlite3 import connect",
        "from safetensors import safe_open\nsafe_open(path, 'np')",
        "import torch\ntorch.load(path)",
        "import torch\ndef f(data: str): torch.load(data)",
        "import torch\ndef f(data: bytes):\n data = path\n torch.load(data)",
        "import torch, io\nbuffer = io.BytesIO()\ntorch.save(state, 'x')",
        "runtime.InferenceSession(path)",
        "def f(data: bytes): pass\ndef g(data): runtime.InferenceSession(data)",
        "import shutil\nshutil.copyfile(a, b)",
    ],
)
def test_a_call_that_opens_a_path_is_found(source):
    assert list(opened(source))


@pytest.mark.parametrize(
    "source",
    [
        "import io\nfrom PIL import Image\nImage.open(io.BytesIO(data), formats=('PNG',))",
        "import io, zipfile\nzipfile.ZipFile(io.BytesIO(content))",
        "from io import BytesIO\nimport torch\ntorch.load(BytesIO(content))",
        "import torch, io\ndef f():\n buffer = io.BytesIO()\n torch.save(state, buffer)",
        "def f(data: bytes): runtime.InferenceSession(data, options)",
        "import zipfile\ndef f(opened: zipfile.ZipFile) -> zipfile.ZipFile: return opened",
        "import webbrowser\nwebbrowser.open(address)",
        "from semishot.sorter import predictions\npredictions.write_text(out, text)",
        "from semishot.system.open_files import open_regular\nopen_regular(path)",
    ],
)
def test_what_works_on_bytes_is_let_through(source):
    assert not list(opened(source))
