"""The commands for fleets: `train`, `evaluate` and `pick`."""

import json
from pathlib import Path

import tyro

from semishot.commands.flags import DataRoot, Device, Flags, Json, Tensorboard
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

    print(train_fleet(request, where, out, tensorboard))


def evaluate(
    request: Flags[EvaluationRequest],
    data_root: DataRoot = None,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Test a trained run folder on episodes of any shape."""
    from semishot.report.tables import records_as_text
    from semishot.training.evaluation import evaluate_folder

    records = evaluate_folder(request, Where(data_root=data_root, device=device))
    print(json.dumps(records, indent=1) if as_json else records_as_text(records))


def pick(
    run: tyro.conf.Positional[Path],
    out: tyro.conf.Positional[Path],
    request: Flags[PickRequest],
    data_root: DataRoot = None,
    device: Device = "auto",
) -> None:
    """Save the run of a fleet that is best on the validation classes as one small file.

    Args:
        run: A folder left by `semishot train` or `reproduce`.
        out: The file to write, NAME.safetensors.
    """
    from semishot.training.evaluation import pick_best

    where = Where(data_root=data_root, device=device)
    print(json.dumps(pick_best(run, out, request, where), indent=1))
