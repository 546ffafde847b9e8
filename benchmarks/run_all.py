"""All benchmarks of training and evaluation in one process: one import of torch, kernels compiled once."""

import argparse
import time
import traceback
from pathlib import Path

import evaluation
import sampler
import update
from measurement import RESULTS
from semishot.system.devices import pick_device
from semishot.system.files import write_json
from semishot.system.processes import keep_freed_memory
from speed_tables import table

BENCHMARKS = {
    "update": update.measure,
    "sampler": sampler.measure,
    "evaluation": evaluation.measure,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="auto", help="cpu, cuda, or auto")
    parser.add_argument("--out", type=Path, help="a folder; default: results/speed")
    parser.add_argument("--quick", action="store_true", help="tiny; writes only where --out says")
    given = parser.parse_args()
    keep_freed_memory()  # as the command does; every contender gains by it
    device = pick_device(given.device)
    out = given.out or (None if given.quick else RESULTS)
    failed = []
    for name, measure in BENCHMARKS.items():
        begun = time.monotonic()
        try:
            result = measure(device, given.quick)
        except Exception:  # time on a GPU is dear: go on with the others
            traceback.print_exc()
            failed.append(name)
            continue
        if out is not None:
            write_json(out / f"{name}-{device.type}.json", result)
        print(f"{table(result)}\n\n({name}: {time.monotonic() - begun:.1f} s)\n", flush=True)
    if failed:
        raise SystemExit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
