"""The commands for fleets: `train`, `evaluate` and `pick`."""

import json
import sys
from collections.abc import Iterable
from pathlib import Path

import tyro

from semishot.commands.flags import Flags, Json, Tensorboard
from semishot.system.devices import DataRoot, Device
from semishot.training.requests import EvaluationRequest, FleetRequest, PickRequest, Where


def train(
    request: Flags[FleetRequest],
    where: Flags[Where],
    out: Path | None = None,
    tensorboard: Tensorboard = False,
) -> None:
    """Train a fleet: one method, one run per split seed, side by side. Prints the run folder.

    Args:
        out: The run folder; by default a folder below --runs named after the settings.
    """
    from semishot.paper.reproduce import train_fleet
    from semishot.training.run_folder import TRAINING_FILE, training_of

    folder = train_fleet(request, where, out, tensorboard)
    training = training_of(folder / TRAINING_FILE).values()
    tell_of_changed((request.model, own["date"]) for own in training)
    print(folder)


def evaluate(
    request: Flags[EvaluationRequest],
    data_root: DataRoot = None,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Test a trained run folder on episodes of any shape."""
    from semishot.report.other_tables import records_as_text
    from semishot.training.evaluation import evaluate_folder

    records = evaluate_folder(request, Where(data_root=data_root, device=device))
    print(json.dumps(records, indent=1) if as_json else records_as_text(records))


def pick(
    run: tyro.conf.Positional[Path],
    out: tyro.conf.Positional[Path],
    request: Flags[PickRequest],
    data_root: DataRoot = None,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Save the run of a fleet that is best on the validation classes as one small file.

    Args:
        run: A folder written by `semishot train` or `reproduce`.
        out: The file to write, NAME.safetensors.
    """
    from semishot.report.other_tables import picked_as_text
    from semishot.training.evaluation import pick_best

    picked = pick_best(run, out, request, Where(data_root=data_root, device=device))
    print(json.dumps(picked.as_json(), indent=1) if as_json else picked_as_text(picked))


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
