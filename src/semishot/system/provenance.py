"""Where a number comes from: the command, the commit of the checkout, a digest of source files."""

import ast
import hashlib
import io
import shlex
import subprocess
import tokenize
from collections.abc import Iterable, Sequence
from pathlib import Path

from semishot.system.files import PACKAGE, read_text

MOST_SOURCE = 2**22
FOLDER_FLAGS = {"--runs", "--data-root", "--publish", "--out", "-o", "--address"}
"""Left out of the command, each with its value: they change no number, and name somebody's machine."""
_given: list[str] = []


def note_command(arguments: Sequence[str]) -> None:
    """Remember the arguments of the command that this process runs."""
    _given[:] = arguments


def command() -> str:
    """The command that this process runs, without the flags that name folders; empty if it runs none.

    Of a whole path, as of a model that is measured, the name is kept.
    """
    kept: list[str] = []
    words = iter(_given)
    for word in words:
        name, has_value, value = word.partition("=")
        if name not in FOLDER_FLAGS:
            kept.append(f"{_name(name)}{has_value}{_name(value)}")
        elif not has_value:
            next(words, "")
    return shlex.join(["semishot", *kept]) if kept else ""


def _name(word: str) -> str:
    return Path(word).name if Path(word).is_absolute() else word


def commit() -> str:
    """The first 12 digits of the commit that is checked out; empty outside a checkout."""
    root = PACKAGE.parents[1]  # an installed package has no .git there
    if not (root / ".git").exists():
        return ""
    git = ["git", "-C", str(root), "rev-parse", "--verify", "HEAD"]
    try:
        found = subprocess.run(git, capture_output=True, text=True, check=False)
    except OSError:  # git is not installed
        return ""
    return found.stdout[:12] if not found.returncode else ""


def source_digest(paths: Iterable[Path]) -> str:
    """12 digits that change with the code of these files, not with comments, docstrings or empty lines."""
    whole = hashlib.sha256()
    for path in paths:
        whole.update(f"{path.name}\n{without_words(read_text(path, MOST_SOURCE))}".encode())
    return whole.hexdigest()[:12]


def without_words(source: str) -> str:
    """Python source without comments, empty lines, and strings that are statements of their own."""
    lines = source.splitlines()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            row, column = token.start
            lines[row - 1] = lines[row - 1][:column]
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            last = node.end_lineno or node.lineno
            lines[node.lineno - 1 : last] = [""] * (last - node.lineno + 1)
    return "\n".join(line.rstrip() for line in lines if line.strip())
