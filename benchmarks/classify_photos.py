"""`semishot classify` on a pile of photographs of 12 megapixels: this version beside an earlier one.

    python benchmarks/photo_pile.py birds40.zip PILE --count 2000
    git worktree add ../before COMMIT
    python benchmarks/classify_photos.py PILE --before ../before/src

Each version is run as a command in a process of its own, in turns, `--rounds` times, from an empty OUT; the
best of each counts. Then this version runs once more on features that are cached. The seconds by part are
those that `result.json` holds. Writes results/photos/classify.json.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from measurement import RESULTS, about_tasks
from semishot.system.files import write_json

OURS = Path(__file__).parents[1] / "src"


def run(source: Path, pile: Path, out: Path, encoder: str | None) -> dict[str, Any]:
    """Seconds of the whole command, and what its result says of them."""
    command = [sys.executable, "-m", "semishot", "classify", "--device", "cpu"]
    command += ["--labeled", str(pile / "labeled"), "--unlabeled", str(pile / "pile")]
    command += ["--out", str(out)] + (["--encoder", encoder] if encoder else [])
    environment = {**os.environ, "PYTHONPATH": str(source)}
    begun = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True, env=environment)
    seconds = time.perf_counter() - begun
    said = json.loads((out / "result.json").read_text(encoding="utf-8"))
    return {
        "seconds": round(seconds, 2),
        "parts": said.get("seconds_by_part", {}),
        "runtimes": said.get("runtimes", {}),
        "images": said["pile"] + sum(said["labeled"].values()),
    }


def measure(pile: Path, before: Path | None, rounds: int, work: Path) -> list[dict[str, Any]]:
    contenders: dict[str, tuple[Path, str | None]] = {}
    if before is not None:
        contenders["before, photos (Lite0)"] = (before, None)
    contenders["now, photos-lite0"] = (OURS, "photos-lite0")
    contenders["now, photos (Lite2)"] = (OURS, None)
    rows: dict[str, dict[str, Any]] = {}
    for _ in range(rounds):
        for name, (source, encoder) in contenders.items():
            out = work / name.replace(" ", "-").replace(",", "")
            shutil.rmtree(out, ignore_errors=True)
            found = {"what": name, **run(source, pile, out, encoder)}
            print(json.dumps(found), flush=True)
            if name not in rows or found["seconds"] < rows[name]["seconds"]:
                rows[name] = found
    again = run(OURS, pile, work / "now-photos-(Lite2)", None)
    rows["now, again"] = {"what": "now, photos (Lite2), features cached", **again}
    print(json.dumps(rows["now, again"]), flush=True)
    return list(rows.values())


def bytes_of(pile: Path) -> int:
    return sum(path.stat().st_size for path in pile.rglob("*.jpg"))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pile", type=Path)
    parser.add_argument("--before", type=Path, help="the folder src of an earlier version")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--out", type=Path, default=RESULTS.parent / "photos" / "classify.json")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="semishot-") as folder:
        rows = measure(given.pile, given.before, given.rounds, Path(folder))
    megabytes = round(bytes_of(given.pile) / 1e6)
    about = about_tasks("classify-photos", rounds=given.rounds, megabytes=megabytes)
    write_json(given.out, {**about, "rows": rows})
