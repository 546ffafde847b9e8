"""Run by a test: trains in children that kill themselves at a chosen event of our own code.

An event is a call or a return, of Python or C, in one of the modules that train and write files, or within
torch.save: so the moments lie densest where a kill could do harm.
"""

import json
import os
import sys
from pathlib import Path

os.environ["CUDA_VISIBLE_DEVICES"] = ""  # a forked child cannot use it

import torch

from semishot.data.pool import open_pool
from semishot.system import files
from semishot.training import classification, examples, fleet_log, fleets, loop, run_folder, update
from semishot.training.config import FleetConfig
from semishot.training.fleet_log import row_of
from semishot.training.loop import TrainingRequest, training
from support import killing as killed

OURS = (classification, examples, files, fleets, loop, run_folder, update)
WATCHED = {"ours": {m.__file__ for m in OURS}, "saving": {torch.serialization.__file__}}


def attempt(
    pool: Path, folder: Path, config: FleetConfig, watched: str, kill_at: int | None
) -> int | None:
    """Train in a child: the number of events if it finished, None if it was killed on the way."""
    row, opened, cpu = row_of(config), open_pool(pool), torch.device("cpu")

    def work() -> None:
        request = TrainingRequest(config, opened, folder, cpu, 0)
        for _ in training(request, examples.images_on(opened, cpu), row):
            pass

    return killed.attempt(work, WATCHED[watched], kill_at)


def main(pool: Path, work: Path, config: FleetConfig, watched: list[str], moments: int) -> int:
    """`whole-*` undisturbed; `killed-*-N` killed once at event N; `often` until it got through."""
    for name in watched:
        events = attempt(pool, work / f"whole-{name}", config, name, None)
        assert events is not None
        for moment in range(1, events, max(1, events // moments)):
            folder = work / f"killed-{name}-{moment}"
            assert attempt(pool, folder, config, name, moment) is None
            assert attempt(pool, folder, config, name, None) is not None
    kills = 0
    while attempt(pool, work / "often", config, watched[0], 40 * (kills + 1)) is None:
        kills += 1
    return kills


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.optim.Adam([torch.zeros(1, requires_grad=True)]).step()  # its slow imports, once
    run_folder.code_state()  # and its reading of our source
    loop.CHUNK = loop.CPU_CHUNK = 3  # a short run with several checkpoints
    fleet_log.SHARE = 100.0  # and as many validations
    arguments = json.loads(sys.argv[1])
    settings = FleetConfig.from_json(arguments["config"])
    pool, work = Path(arguments["pool"]), Path(arguments["work"])
    print(main(pool, work, settings, arguments["watched"], arguments["moments"]))
