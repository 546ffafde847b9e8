"""`make fuzz`: cases by the thousand through every door, at random and guided by coverage; what was found.

Each door has a process of its own, with bounded memory; each case has bounded time. A case either works or
ends in InputError. A sample goes through the real commands: one line, exit code 2, no traceback.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]
GUIDED_SHARE = 0.5
TIMEOUT = 1800


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=600, help="for each door")
    parser.add_argument("--commands", type=int, default=40, help="real commands in processes")
    parser.add_argument("--doors", default="", help="only those whose names contain this")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--alone", choices=("random", "guided"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.alone:
        fuzz_alone(options.alone, options.doors, options.cases, options.seed)
        return
    sys.exit(fuzz_all(options))


def fuzz_all(options: argparse.Namespace) -> int:
    from every_door import DOORS

    words = ("random", "guided", "worked", "refused", "found", "MB", "s")
    widths = (7, 7, 7, 8, 6, 6, 5)
    print(f"{'door':18}", *(f"{word:>{w}}" for word, w in zip(words, widths, strict=True)))
    total: Counter[str] = Counter()
    findings = []
    for door in (d for d in DOORS if options.doors in d.name):
        counts: Counter[str] = Counter()
        begun, peak = time.monotonic(), 0
        for kind in ("random", "guided"):
            said = in_process(door.name, kind, options.cases, options.seed)
            counts.update(said["counts"])
            counts[kind] += sum(said["counts"].values())
            peak = max(peak, said["megabytes"])
            findings += [(door.name, finding) for finding in said["findings"]]
        print_row(door.name, counts, peak, time.monotonic() - begun)
        total.update(counts)
    print_row("all", total, 0, 0)
    findings += [("real command", line) for line in real_commands(options.commands, options.seed)]
    for door, finding in findings:
        print(f"FOUND {door}: {finding}")
    return 1 if findings else 0


def print_row(name: str, counts: Counter[str], peak: int, seconds: float) -> None:
    cells = [counts[key] for key in ("random", "guided", "worked", "refused", "found")]
    widths = zip(cells, (7, 7, 7, 8, 6), strict=True)
    row = " ".join(f"{cell:>{width},}" for cell, width in widths)
    print(f"{name:18} {row} {peak or '':>6} {f'{seconds:.0f}' if seconds else '':>5}", flush=True)


def in_process(door: str, kind: str, cases: int, seed: int) -> dict[str, Any]:
    """What a process of its own says of a door; that it died is a finding too."""
    count = int(cases * (GUIDED_SHARE if kind == "guided" else 1 - GUIDED_SHARE))
    with tempfile.TemporaryDirectory(prefix="semishot-fuzz-run-") as folder:
        report = Path(folder) / "report.json"
        environment = {**os.environ, "FUZZ_REPORT": str(report), "TMPDIR": folder}
        environment["XDG_DATA_HOME"] = folder
        command = [sys.executable, str(HERE / "run.py"), "--alone", kind, "--doors", door]
        command += ["--cases", str(count), "--seed", str(seed)]
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=TIMEOUT, check=False
        )
        said = json.loads(report.read_text()) if report.exists() else {}
    counts = said.get("counts", {})
    if sum(counts.values()) < count:
        died = f"{kind}: died with {done.returncode} after {sum(counts.values())}: {done.stderr[-500:]}"
        said["findings"] = [*said.get("findings", []), died]
    return {
        "counts": counts,
        "findings": said.get("findings", []),
        "megabytes": said.get("megabytes", 0),
    }


class Report:
    """What came of the cases so far, in a file that outlives this process."""

    def __init__(self, cases: int) -> None:
        self.path, self.cases = Path(os.environ["FUZZ_REPORT"]), cases
        self.counts: Counter[str] = Counter()
        self.findings: dict[str, str] = {}

    def push(self, door: Any, data: bytes) -> None:
        from doors import FindingError, push

        try:
            self.counts[push(door, data)] += 1
        except FindingError as error:
            self.counts["found"] += 1
            self.findings.setdefault(place_of(error), f"{error} {data[:200]!r}")
        if sum(self.counts.values()) % 25 == 0 or sum(self.counts.values()) == self.cases:
            self.write()

    def write(self) -> None:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        found = [f"{place}: {text}" for place, text in self.findings.items()]
        self.path.write_text(
            json.dumps({"counts": self.counts, "findings": found, "megabytes": peak})
        )


def place_of(error: BaseException) -> str:
    """The line of ours that is to blame."""
    while error.__cause__ is not None:
        error = error.__cause__
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if "semishot" in f.filename] or list(frames)
    return f"{Path(own[-1].filename).name}:{own[-1].lineno}" if own else type(error).__name__


def fuzz_alone(kind: str, name: str, cases: int, seed: int) -> None:
    if kind == "guided":
        import atheris

        with atheris.instrument_imports(include=["semishot"]):
            from every_door import DOORS
    else:
        from every_door import DOORS
    import torch
    from doors import limit_memory

    torch.set_num_threads(1)
    door = next(d for d in DOORS if d.name == name)
    report = Report(cases)
    for valid in door.seeds():
        door_enter_once(door, valid)
    limit_memory()
    if kind == "random":
        for number in range(cases):
            report.push(door, door.odd(Random(f"{name} {seed} {number}")))
        return
    guide(door, report, cases, seed)


def door_enter_once(door: Any, valid: bytes) -> None:
    """Imports and caches are not counted as a case's memory."""
    from doors import FindingError, push

    try:
        push(door, valid)
    except FindingError as error:
        sys.exit(f"a valid file was not taken: {error}")


def guide(door: Any, report: Report, cases: int, seed: int) -> None:
    """libFuzzer keeps what reaches new lines of ours and changes it further, by the door's own mutation."""
    import atheris

    seeds = door.seeds()

    def mutate(data: bytes, most: int, number: int) -> bytes:
        rng = Random(number)
        if len(data) < 2:  # what libFuzzer begins with
            data = rng.choice(seeds)
        changed: bytes = door.mutate(data, rng, seeds)
        return (door.mend(changed) if rng.random() < 0.7 else changed)[:most]

    with tempfile.TemporaryDirectory(prefix="semishot-fuzz-seeds-") as folder:
        for number, data in enumerate(seeds):
            (Path(folder) / str(number)).write_bytes(data)
        arguments = [
            sys.argv[0],
            f"-runs={cases}",
            f"-seed={seed + 1}",
            "-timeout=60",
            "-max_len=200000",
        ]
        arguments += ["-rss_limit_mb=0", "-verbosity=0", f"-artifact_prefix={folder}/", folder]
        atheris.Setup(arguments, lambda data: report.push(door, data), custom_mutator=mutate)
        atheris.Fuzz()


def real_commands(count: int, seed: int) -> list[str]:
    """Odd command lines in processes of their own; each ends by itself, in success or in one line."""
    from command_doors import commands, furnish, home, surroundings
    from mutations import odd_words

    surroundings()
    codes: Counter[str] = Counter()
    findings = []
    seeds = [c for c in commands() if not c.startswith((b"train", b"reproduce"))]
    for number in range(count):
        words = odd_words(seeds[number % len(seeds)], Random(f"{seed} {number}"), seeds)
        with tempfile.TemporaryDirectory(prefix="semishot-fuzz-") as folder:
            furnish(Path(folder))
            line = words.replace(b"@@", str(home()).encode()).replace(b"##", folder.encode())
            done = subprocess.run(
                [sys.executable.encode(), b"-m", b"semishot", *line.split(b"\0")],
                cwd=folder,
                capture_output=True,
                timeout=120,
                check=False,
            )
        said = done.stderr.decode("utf-8", "replace").rstrip("\n").split("\n")[-1]
        codes[str(done.returncode)] += 1
        told = said.startswith(("semishot: ", "╰"))
        if (
            b"Traceback" in done.stderr
            or done.returncode not in (0, 1, 2)
            or (done.returncode and not told)
        ):
            findings.append(f"{line!r}: {done.returncode}, {said[-300:]}")
    print(f"{count} real commands, by exit code: {dict(sorted(codes.items()))}")
    return findings


if __name__ == "__main__":
    main()
