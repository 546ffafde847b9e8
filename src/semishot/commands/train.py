"""The commands for fleets: `train`, `evaluate` and `pick`."""

import json
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import tyro

from semishot.commands.flags import DataAndDevice, Flags, Printing, Tensorboard
from semishot.training.requests import EvaluationRequest, FleetRequest, PickRequest, Where


@dataclass(frozen=True)
class FleetOutput:
    """What a training leaves."""

    out: Path | None = None
    """The run folder; by default a folder below --runs named after the settings."""
    tensorboard: Tensorboard = False


def train(
    request: Flags[FleetRequest],
    where: Flags[Where],
    output: Flags[FleetOutput],
) -> None:
    """Train a fleet: one method, one run per split seed, side by side. Prints the run folder."""
    from semishot.paper.reproduce import train_fleet
    from semishot.training.run_folder import TRAINING_FILE, read_sessions

    folder = train_fleet(request, where, output.out, output.tensorboard)
    if ":" in request.model:
        sessions = read_sessions(folder / TRAINING_FILE)
        tell_of_changed((request.model, session["date"]) for session in sessions)
    print(folder)


def evaluate(
    request: Flags[EvaluationRequest],
    place: Flags[DataAndDevice],
    printing: Flags[Printing],
) -> None:
    """Test a trained run folder on episodes of any shape."""
    from semishot.report.run_tables import records_as_text
    from semishot.training.evaluation import evaluate_folder

    records = evaluate_folder(request, Where(data_root=place.data_root, device=place.device))
    print(json.dumps(records, indent=1) if printing.as_json else records_as_text(records))


def pick(
    run: tyro.conf.Positional[Path],
    out: tyro.conf.Positional[Path],
    request: Flags[PickRequest],
    place: Flags[DataAndDevice],
    printing: Flags[Printing],
) -> None:
    """Save the run of a fleet that is best on the validation classes as one small file.

    Args:
        run: A folder written by `semishot train` or `reproduce`.
        out: The file to write, NAME.safetensors.
    """
    from semishot.report.run_tables import picked_as_text
    from semishot.training.evaluation import pick_best

    picked = pick_best(run, out, request, Where(data_root=place.data_root, device=place.device))
    print(json.dumps(picked.as_json(), indent=1) if printing.as_json else picked_as_text(picked))


def tell_of_changed(trained: Iterable[tuple[str, str]]) -> None:
    """For pairs of a method and the date of its training: runs that exist are not trained again."""
    from semishot.training.run_folder import saved_after

    first: dict[str, str] = {}
    for method, date in trained:
        if ":" in method:
            first[method] = min(date, first.get(method, date))
    for method, date in first.items():
        if file := saved_after(method, date):
            print(
                f"{method} was trained on {date}, and {file.name} was saved later: if the method has "
                "changed, delete its run folders, or choose another --runs or --out, to train it again",
                file=sys.stderr,
            )
