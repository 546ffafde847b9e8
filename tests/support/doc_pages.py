"""Pages of the documentation, played: their commands and Python are run, in order, in one new folder.

    PYTHONPATH=src:tests python -m support.doc_pages docs/sort_photographs.md    # writes its outputs anew

A `text` block is what the block before it prints. A block of Python with a title is a file to write. What
opens a server, installs or downloads is not run.
"""

import contextlib
import io
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
FENCE = re.compile(
    r"^```(bash|text|python)(?: title=\"(.+)\")?\n(.*?)^```$", re.MULTILINE | re.DOTALL
)
NOT_RUN = re.compile(r"semishot label |pip |uv|git |make ")
NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?(?:e-\d+)?")


def printed(line: str, folder: Path) -> str:
    """What a command of the shell prints; an error if it fails."""
    paths = [str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
    more = {"PYTHONPATH": os.pathsep.join(filter(None, paths)), "COLUMNS": "100"}
    line = re.sub(r"^semishot ", f"{sys.executable} -m semishot ", line)
    words = ["bash", "-c", re.sub(r"^python ", f"{sys.executable} ", line)]
    done = subprocess.run(
        words, cwd=folder, env={**os.environ, **more}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{line}: {done.stderr}"
    return done.stdout


def played(page: Path, folder: Path) -> str:
    """The page with what its blocks print now."""
    here, last, names = folder, "", dict[str, Any](__name__="page")

    def play(match: re.Match[str]) -> str:
        nonlocal here, last
        kind, title, code = match.groups()
        if kind == "text":
            return f"```text\n{last}```"
        last = ""
        if title:
            (here / title).write_text(code)
        elif kind == "python":
            with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.chdir(here):
                exec(compile(code, page.name, "exec"), names)
            last = out.getvalue()
        else:
            for line in code.replace("\\\n", " ").splitlines():
                words = line.partition("  #")[0].strip()
                if words.startswith("cd "):
                    here = here / words[3:]
                elif words and not NOT_RUN.match(words):
                    last = printed(words, here)
        return match[0]

    return FENCE.sub(play, page.read_text(encoding="utf-8"))


def alike(found: str, expected: str) -> bool:
    """The same words, and numbers as near as another processor's rounding leaves them."""
    if NUMBER.sub("0", found).split() != NUMBER.sub("0", expected).split():
        return False
    pairs = zip(NUMBER.findall(found), NUMBER.findall(expected), strict=True)
    numbers = [[float(text.replace(",", "")) for text in pair] for pair in pairs]
    return all(abs(one - other) <= max(5, 0.2 * abs(other)) for one, other in numbers)


def as_notebook(page: str) -> str:
    """Text and Python of a page as cells of a notebook; commands of the shell begin with `!`."""
    cells, end = [], 0

    def add(kind: str, text: str) -> None:
        if text := text.strip("\n"):
            more = {"execution_count": None, "outputs": []} if kind == "code" else {}
            lines = text.splitlines(keepends=True)
            name = f"cell-{len(cells)}"
            cells.append({"cell_type": kind, "id": name, "metadata": {}, "source": lines, **more})

    for match in FENCE.finditer(page):
        kind, _, code = match.groups()
        add("markdown", page[end : match.start()])
        if kind != "text":
            add("code", code if kind == "python" else re.sub(r"(?m)^(?=\S)", "!", code))
        end = match.end()
    add("markdown", page[end:])
    python = {"display_name": "Python 3", "language": "python", "name": "python3"}
    book = {"cells": cells, "metadata": {"kernelspec": python}, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(book, indent=1, ensure_ascii=False, sort_keys=True) + "\n"


if __name__ == "__main__":
    for name in sys.argv[1:]:
        with tempfile.TemporaryDirectory() as work:
            text = played(ROOT / name, Path(work))
        (ROOT / name).write_text(text, encoding="utf-8")
        if (book := ROOT / "examples" / Path(name).with_suffix(".ipynb").name).exists():
            book.write_text(as_notebook(text), encoding="utf-8")
