"""Run by two tests: trains in children that kill themselves at a chosen event of our own code.

An event is a call or a return, of Python or C, in one of the modules that train and write files, within
torch.save, or where event files are written: so the moments lie densest where a kill could do harm.
"""

import json
import os
import signal
import sys
import traceback
from pathlib import Path

import torch

from semishot import board, chunks, files, follow, log, train, update, validation
from semishot.config import FleetConfig
from semishot.fleet_table import row_of
from semishot.image_pool import open_pool

WATCHED = {
    "ours": {module.__file__ for module in (chunks, files, follow, log, train, update)},
    "saving": {torch.serialization.__file__},
    "board": {board.__file__, follow.__file__, log.__file__},
}


def attempt(
    pool: Path, folder: Path, config: FleetConfig, watched: str, kill_at: int | None
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
        if frame.f_code.co_filename in WATCHED[watched]:
            seen += 1
            if seen == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)

    try:
        row, opened = row_of(config), open_pool(pool)
        sys.setprofile(count)
        images = train.images_on(opened, torch.device("cpu"))
        device, tensorboard = torch.device("cpu"), watched == "board"
        for _ in train.training(config, opened, images, folder, device, row, 0, tensorboard):
            pass
        sys.setprofile(None)
        os.write(writer, str(seen).encode())
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        os._exit(1)


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
    train.CHUNK = 3  # a short run with several checkpoints
    validation.SHARE = 100.0  # and as many validations
    arguments = json.loads(sys.argv[1])
    settings = FleetConfig.from_json(arguments["config"])
    pool, work = Path(arguments["pool"]), Path(arguments["work"])
    print(main(pool, work, settings, arguments["watched"], arguments["moments"]))
