"""The entry point of the command `semishot`. Signals and streams come first: imports take their time."""

import io
import sys

from semishot import __version__
from semishot.commands.exit_codes import one_line_errors
from semishot.commands.interrupted import note_what_stays
from semishot.commands.signals import end_on_signals
from semishot.errors import InputError
from semishot.system.streams import occupy_descriptors


def main(arguments: list[str] | None = None) -> None:
    """Run one command. An error is one line and an exit code: see `exit_codes.py`.

    Without arguments it is the command of this process, and may end it: see `signals.py`.
    """
    note_what_stays(sys.argv[1:] if arguments is None else arguments)
    if arguments is None:
        occupy_descriptors()
        end_on_signals()
        arguments = sys.argv[1:]
        if arguments != ["--version"]:
            import semishot.commands.table  # noqa: F401  here, where a signal ends the process at once
    with one_line_errors():
        run(arguments)


def run(arguments: list[str]) -> None:
    if arguments == ["--version"]:
        print(__version__)
        return
    import tyro

    from semishot.commands.table import COMMANDS, app_of
    from semishot.system.memory import keep_freed_memory
    from semishot.system.running import note_command

    check_working_folder()
    keep_freed_memory()
    note_command(arguments)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # whatever names are printed
            stream.reconfigure(errors="backslashreplace")
    app_of(COMMANDS).cli(
        prog="semishot",
        args=arguments,
        description="Few-shot classification with unlabeled data (Ren et al., ICLR 2018).",
        config=(tyro.conf.FlagCreatePairsOff, tyro.conf.OmitArgPrefixes),
    )


def check_working_folder() -> None:
    """Some libraries end the process if it does not exist, in their own words."""
    from pathlib import Path

    try:
        Path.cwd()
    except FileNotFoundError as error:
        raise InputError(
            "the working folder has been deleted: change to another folder (cd), and run it again"
        ) from error
