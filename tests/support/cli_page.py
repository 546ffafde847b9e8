"""docs/cli.md from what the commands say of themselves: `PYTHONPATH=src:tests python -m support.cli_page`."""

import contextlib
import io
import os
import re
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

from semishot.commands.main import all_commands, main

PAGE = Path(__file__).parents[2] / "docs" / "cli.md"
HEAD = """\
# Commands

Made from `semishot COMMAND --help`. Results go to stdout, progress to stderr;
[exit codes](files.md#exit-codes) say how a command ended. No command asks questions.
"""


def help_of(words: list[str]) -> str:
    with (
        mock.patch.dict(os.environ, {"COLUMNS": "100", "NO_COLOR": "1"}),
        contextlib.redirect_stdout(io.StringIO()) as out,
        contextlib.suppress(SystemExit),
    ):
        main([*words, "--help"])
    return out.getvalue()


def options(text: str) -> Iterator[tuple[str, str]]:
    """Each flag or argument of a help text, and what is said of it."""
    flag, said = "", ""
    for line in text.splitlines():
        if re.match(r"  [-A-Z\[{]", line) and "----" not in line:
            if flag:
                yield flag, said
            flag, _, said = (part.strip() for part in line.strip().partition("  "))
        elif flag and line.startswith("     "):
            said = f"{said} {line.strip()}".strip()
    if flag:
        yield flag, said


def cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


def section(words: list[str], depth: int) -> str:
    text = help_of(words)
    about = " ".join(text.split("\n\n")[1].split())
    lines = [f"{'#' * depth} semishot {' '.join(words)}", "", about, ""]
    rows = [(f, s) for f, s in options(text) if re.match(r"-(?!h)|\[*[A-Z_]+\b", f)]
    if rows:
        lines += ["| option | meaning |", "|---|---|"]
        for flag, said in rows:
            shown = re.sub(r"\{None\}\||None,|\{\[|\]\}", "", flag)
            shown = re.sub(r"^\[(\[.*\])\]$", r"\1", shown)
            said = re.sub(r" ?\(default: (None|False|'')?\)$", "", said)
            lines.append(f"| `{cell(shown)}` | {cell(said)} |")
        lines.append("")
    return "\n".join(lines)


def page() -> str:
    parts = [HEAD]
    for name, command in all_commands().items():
        if isinstance(command, tuple):
            parts.append(f"## semishot {name}\n\n{command[0]}\n")
            parts += [section([name, inner], 3) for inner in command[1]]
        else:
            parts.append(section([name], 2))
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
