"""The table of all commands. Their functions import what they need: `--help` imports no torch."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tyro.extras import SubcommandApp

from semishot.commands import data, doctor, label, report, reproduce, show, sort, train

Command = Callable[..., None]


@dataclass(frozen=True)
class Group:
    """A group of commands, as in `semishot data list`."""

    summary: str
    commands: Mapping[str, Command]


COMMANDS: Mapping[str, Command | Group] = {
    "demo": reproduce.demo,
    "classify": sort.classify,
    "label": label.label,
    "predict": sort.predict,
    "export": sort.export,
    "undo": sort.undo,
    "reproduce": Group(
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
    "show": Group(
        "Draw an episode or a refinement.",
        {"episode": show.episode, "refinement": show.refinement},
    ),
    "data": Group(
        "Prepare, verify and list data sets.",
        {"prepare": data.prepare, "verify": data.verify, "list": data.list_prepared},
    ),
    "doctor": doctor.doctor,
}


def app_of(commands: Mapping[str, Command | Group]) -> SubcommandApp:
    app = SubcommandApp()
    for name, command in commands.items():
        if isinstance(command, Group):
            app.command(app_of(command.commands), name=name, help=command.summary)
        else:
            app.command(name=name)(command)
    return app
