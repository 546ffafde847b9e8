"""What is running: the command that was given, the commit of the checkout, and a digest of source files."""

import ast
import hashlib
import io
import shlex
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
    """The first 12 digits of the commit that is checked out, from git's files; empty outside a checkout."""
    git = PACKAGE.parents[1] / ".git"  # an installed package has none there
    try:
        if git.is_file():  # of a worktree
            git = git.parent / read_text(git, MOST_SOURCE).removeprefix("gitdir:").strip()
        head = read_text(git / "HEAD", MOST_SOURCE).strip()
        name = head.removeprefix("ref: ")
        if name == head:
            return head[:12]
        common = git / "commondir"
        shared = git / read_text(common, MOST_SOURCE).strip() if common.is_file() else git
        if (shared / name).is_file():
            return read_text(shared / name, MOST_SOURCE)[:12]
        packed = read_text(shared / "packed-refs", MOST_SOURCE).splitlines()
        return next((line[:12] for line in packed if line.endswith(f" {name}")), "")
    except (OSError, ValueError):  # InputError among them
        return ""


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
