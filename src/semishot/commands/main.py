"""The entry point of the command `semishot`, and the table of its commands.

Signals and streams come first, imports take their time: each command's function imports what it needs.
"""

import io
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from semishot import __version__
from semishot.commands.exit_codes import end_on_signals, one_line_errors
from semishot.errors import InputError, needing_extra
from semishot.system.processes import keep_freed_memory, note_left

if TYPE_CHECKING:
    from tyro.extras import SubcommandApp

Command = Callable[..., None]
Group = tuple[str, Mapping[str, Command]]
"""What a group of commands is for, and its commands, as in `semishot data list`."""
CHECKPOINT = "the same command continues from the last checkpoint"
TRAINING = ("demo", "train", "reproduce", "evaluate")
"""Commands that reuse freed memory. Where threads decode images, each would keep that of its largest one."""
LEFT = {
    **dict.fromkeys(("demo", "train", "reproduce"), CHECKPOINT),
    "classify": "the features of images read so far are kept, and the same command continues",
    "predict": "run it again; with --cache, the features of images read so far are kept",
    "label": "answers are kept, and the same command continues",
    "undo": "the same command undoes the rest",
    "data prepare": "run it again; a large data set continues where it stopped",
}
"""The others write one thing at the end, or nothing."""


def main(arguments: list[str] | None = None) -> None:
    """Run one command. An error is one line and an exit code: see `exit_codes.py`.

    Without arguments it is the command of this process, and may end it: see `end_on_signals`.
    """
    words = sys.argv[1:] if arguments is None else arguments
    note_left(LEFT.get(" ".join(words[:2]), LEFT.get(" ".join(words[:1]), "")))
    if arguments is None:
        end_on_signals()
        if words != ["--version"]:
            all_commands()  # here, where a signal ends the process at once
    with one_line_errors():
        run(words)


def run(arguments: list[str]) -> None:
    if arguments == ["--version"]:
        print(__version__)
        return
    import tyro

    from semishot.system.provenance import note_command

    try:
        Path.cwd()  # some libraries end the process without one, in their own words
    except FileNotFoundError as error:
        raise InputError(
            "the working folder has been deleted: change to another one (cd)"
        ) from error
    if " ".join(arguments[:1]) in TRAINING:
        keep_freed_memory()
    note_command(arguments)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # whatever names are printed
            stream.reconfigure(errors="backslashreplace")
    with needing_extra(f"`semishot {' '.join(arguments[:1])}`"):
        app_of(all_commands()).cli(
            prog="semishot",
            args=arguments,
            description="Few-shot classification with unlabeled data (Ren et al., ICLR 2018).",
            config=(tyro.conf.FlagCreatePairsOff, tyro.conf.OmitArgPrefixes),
        )


def all_commands() -> Mapping[str, Command | Group]:
    """The commands by name; importing their functions imports no torch."""
    from semishot.commands import data, report, reproduce, sort, train

    return {
        "demo": reproduce.demo,
        "sample": sort.sample,
        "classify": sort.classify,
        "label": sort.label,
        "audit": sort.audit,
        "predict": sort.predict,
        "export": sort.export,
        "undo": sort.undo,
        "reproduce": (
            "Train and test what a table or figure lacks; print it beside the paper's.",
            {
                "table1": reproduce.table_command("table1", "Table 1 (Omniglot)"),
                "table2": reproduce.table_command("table2", "Table 2 (miniImageNet)"),
                "table3": reproduce.table_command("table3", "Table 3 (tieredImageNet)"),
                "table5": reproduce.table5,
                "figure-unlabeled": reproduce.table_command(
                    "figure-unlabeled", "Accuracy over unlabeled images"
                ),
                "figure-masks": reproduce.figure_masks,
                "ablations": reproduce.ablations,
            },
        ),
        "train": train.train,
        "evaluate": train.evaluate,
        "pick": train.pick,
        "results": report.results,
        "report": report.report,
        "show": (
            "Draw the task, an episode, a refinement, or tieredImageNet's categories.",
            {
                "task": report.task,
                "episode": report.episode,
                "refinement": report.refinement,
                "hierarchy": report.hierarchy,
            },
        ),
        "data": (
            "Prepare, verify and list data sets.",
            {"prepare": data.prepare, "verify": data.verify, "list": data.list_prepared},
        ),
        "doctor": data.doctor,
    }


def app_of(commands: Mapping[str, Command] | Mapping[str, Command | Group]) -> "SubcommandApp":
    from tyro.extras import SubcommandApp

    app = SubcommandApp()
    for name, command in commands.items():
        if isinstance(command, tuple):
            app.command(app_of(command[1]), name=name, help=command[0])
        else:
            app.command(name=name)(command)
    return app
