"""`semishot classify` on a pile of photographs of 12 megapixels: this version beside an earlier one.

    python benchmarks/photo_pile.py birds40.zip PILE --count 2000
    git worktree add ../before COMMIT
    python benchmarks/classify_photos.py --pile PILE --before ../before/src

Each version is run as a command in a process of its own, in turns, `--rounds` times, from an empty OUT; the
best of each counts. Then this version runs once more on features that are cached. The seconds by part are
those that `result.json` holds. Seconds of processors, of all cores together, depend less on what else
runs on the machine.
"""

import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from measurement import command, result

OURS = Path(__file__).parents[1] / "src"


def run(source: Path, pile: Path, out: Path, encoder: str | None) -> dict[str, Any]:
    """Seconds of the whole command and of processors, and what its result says of them."""
    command = [sys.executable, "-m", "semishot", "classify", "--device", "cpu"]
    command += ["--labeled", str(pile / "labeled"), "--unlabeled", str(pile / "pile")]
    command += ["--out", str(out)] + (["--encoder", encoder] if encoder else [])
    environment = {**os.environ, "PYTHONPATH": str(source)}
    begun, used = time.perf_counter(), processor_seconds()
    subprocess.run(command, check=True, capture_output=True, env=environment)
    seconds = time.perf_counter() - begun
    said = json.loads((out / "result.json").read_text(encoding="utf-8"))
    return {
        "seconds": round(seconds, 2),
        "processor_seconds": round(processor_seconds() - used, 2),
        "parts": said.get("seconds_by_part", {}),
        "runtimes": said.get("runtimes", {}),
        "images": said["pile"] + sum(said["labeled"].values()),
    }


def processor_seconds() -> float:
    """Of all processes that were started here and have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def measure(
    device: torch.device, quick: bool, pile: Path | None, before: Path | None, rounds: int
) -> dict[str, Any]:
    """On the CPU, wherever the others are."""
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="semishot-") as folder:
        work = Path(folder)
        if quick:
            make_small(work)
        elif pile is None:
            raise SystemExit("--pile is missing: benchmarks/photo_pile.py makes one")
        pile = work if quick or pile is None else pile
        rows = in_turns(pile, before, rounds, work)
        megabytes = round(sum(path.stat().st_size for path in pile.glob("**/IMG_*")) / 1e6)
    settings = {"rounds": rounds, "megabytes": megabytes, "load_average_before": load}
    return result("classify_photos", torch.device("cpu"), quick, settings, rows)


def in_turns(pile: Path, before: Path | None, rounds: int, work: Path) -> list[dict[str, Any]]:
    contenders: dict[str, tuple[Path, str | None]] = {}
    if before is not None:
        contenders["before, the default (Lite0)"] = (before, None)
    contenders["now, photos-lite0"] = (OURS, "photos-lite0")
    contenders["now, the default (Lite2)"] = (OURS, None)
    rows: dict[str, dict[str, Any]] = {}
    for _ in range(rounds):
        for name, (source, encoder) in contenders.items():
            out = work / f"out-{name}"
            shutil.rmtree(out, ignore_errors=True)
            found = {"what": name, **run(source, pile, out, encoder)}
            print(json.dumps(found), file=sys.stderr, flush=True)
            if name not in rows or found["seconds"] < rows[name]["seconds"]:
                rows[name] = found
    again = run(OURS, pile, work / "out-now, the default (Lite2)", None)
    return [*rows.values(), {"what": "now, the default, features cached", **again}]


def make_small(folder: Path) -> None:
    """A few images of noise, to check that it runs."""
    rng = np.random.default_rng(0)
    for place, below in enumerate(["labeled/a", "labeled/b", *["pile"] * 6]):
        (folder / below).mkdir(parents=True, exist_ok=True)
        noise = Image.fromarray(rng.integers(0, 256, (60, 80, 3), np.uint8))
        noise.save(folder / below / f"IMG_{place}.jpg")


if __name__ == "__main__":
    command(
        "classify_photos",
        measure,
        pile={"type": Path, "help": "what photo_pile.py has made"},
        before={"type": Path, "help": "the folder src of an earlier version"},
        rounds={"type": int, "default": 1},
    )
