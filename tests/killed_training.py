"""Run by test_train.py: trains in children that kill themselves at a chosen event of our own code.

An event is a call or a return, of Python or C, in one of the modules that train and write files, or
within torch.save: so the moments lie densest where a kill could do harm.
"""

import json
import os
import signal
import sys
import traceback
from pathlib import Path

import torch

from semishot import files, train, update
from semishot.config import FleetConfig
from semishot.image_pool import open_pool
from semishot.progress import Meter

OURS = {module.__file__ for module in (files, train, update)}
SAVING = {torch.serialization.__file__}


def attempt(
    pool: Path, folder: Path, config: FleetConfig, watched: set[str | None], kill_at: int | None
) -> int | None:
    """Train in a child: the number of events if it finished, None if it was killed on the way."""
    reader, writer = os.pipe()
    child = os.fork()
    if child:
        os.close(writer)
        with os.fdopen(reader) as pipe:
            events = pipe.read()
        _, status = os.waitpid(child, 0)
        killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
        assert killed or status == 0, "the child failed; its traceback is above"
        return None if killed else int(events)
    seen = 0

    def count(frame, event, argument):
        nonlocal seen
        if frame.f_code.co_filename in watched:
            seen += 1
            if seen == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)

    try:
        meter, opened = Meter("training", train.cost(config)), open_pool(pool)
        sys.setprofile(count)
        images = train.images_on(opened, torch.device("cpu"))
        for _ in train.training(config, opened, images, folder, torch.device("cpu"), meter, 0):
            pass
        sys.setprofile(None)
        os.write(writer, str(seen).encode())
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        os._exit(1)


def main(pool: Path, work: Path, config: FleetConfig, moments: int) -> int:
    """`whole-*` undisturbed; `killed-*-N` killed once at event N; `often` until it got through."""
    for name, watched in (("ours", OURS), ("saving", SAVING)):
        events = attempt(pool, work / f"whole-{name}", config, watched, None)
        assert events is not None
        for moment in range(1, events, max(1, events // moments)):
            folder = work / f"killed-{name}-{moment}"
            assert attempt(pool, folder, config, watched, moment) is None
            assert attempt(pool, folder, config, watched, None) is not None
    kills = 0
    while attempt(pool, work / "often", config, OURS, 40 * (kills + 1)) is None:
        kills += 1
    return kills


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.optim.Adam([torch.zeros(1, requires_grad=True)]).step()  # its slow imports, once
    train.CHUNK = 3  # a short run with several checkpoints
    arguments = json.loads(sys.argv[1])
    settings = FleetConfig.from_json(arguments["config"])
    kills = main(Path(arguments["pool"]), Path(arguments["work"]), settings, arguments["moments"])
    print(kills)
