"""All benchmarks of a CPU one after the other, on a machine that does nothing else; then docs/speed.md.

    pip install --no-deps --target RIVALS easyfsl openvino
    python benchmarks/photo_pile.py birds40.zip PILE       # once: 6 GB, 6 minutes
    git worktree add ../before COMMIT                      # of version 0.1
    PYTHONPATH=src:RIVALS python benchmarks/run_cpu.py --pile PILE --before ../before/src

Each is a process of its own and writes its result when it ends, so that one which fails, or takes more than
three times its usual time, costs nothing but its table. What does not fit into `--minutes` is not begun: the
first in the list are those that users wait for and those beside rivals.
"""

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

FOLDER = Path(__file__).parent
SECONDS = {
    "starts": 80,
    "update": 60,
    "runtimes": 90,
    "classify_photos": 270,
    "label": 80,
    "classifier": 150,
    "logistic": 45,
    "evaluation": 40,
    "sampler": 15,
    "scaling": 60,
    "engine": 120,
    "build_pool": 110,
}
"""About how long each takes on two cores."""


def arguments(name: str, given: argparse.Namespace) -> list[str]:
    found = ["--device", "cpu"]
    if given.quick:
        return [*found, "--quick", "--out", str(given.out / f"{name}-cpu.json")]
    if given.out is not None:
        found += ["--out", str(given.out / f"{name}-cpu.json")]
    if name in ("starts", "classify_photos") and given.before is not None:
        found += ["--before", str(given.before)]
    if name == "classify_photos":
        found += ["--pile", str(given.pile)]
    if name == "label":
        found += ["--images", "10000"]  # 100,000 would take as long as all others
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=list(SECONDS), default=list(SECONDS))
    parser.add_argument("--minutes", type=float, default=15.0)
    parser.add_argument("--pile", type=Path, help="photographs, for classify_photos")
    parser.add_argument("--before", type=Path, help="the folder src of an earlier version")
    parser.add_argument("--out", type=Path, help="a folder; default: results/speed")
    parser.add_argument("--quick", action="store_true", help="tiny; writes only where --out says")
    given = parser.parse_args()
    if given.quick and given.out is None:
        parser.error("--quick writes only where --out says")
    end = time.monotonic() + 60 * given.minutes
    print(f"load average {os.getloadavg()[0]:.1f}; it should be below 0.5", flush=True)
    failed, left = [], []
    for name in given.only:
        if time.monotonic() + SECONDS[name] > end or (
            name == "classify_photos" and given.pile is None and not given.quick
        ):
            left.append(name)
            continue
        begun = time.monotonic()
        words = [sys.executable, str(FOLDER / f"{name}.py"), *arguments(name, given)]
        try:
            code = subprocess.run(words, timeout=3 * SECONDS[name], check=False).returncode
        except subprocess.TimeoutExpired:
            code = -1
        failed += [name] if code else []
        print(f"({name}: {time.monotonic() - begun:.0f} s)\n", flush=True)
    if not given.quick and given.out is None:
        subprocess.run([sys.executable, str(FOLDER / "summarize.py")], check=True)
    if left:
        print(f"not begun, for lack of time or of --pile: {', '.join(left)}")
    if failed:
        raise SystemExit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
