"""The start of a command: seconds to its first output on a terminal and to its result, and CPU seconds.

    git worktree add ../before COMMIT
    python benchmarks/starts.py --before ../before/src

`classify`, `predict` and `label` are run on made-up images whose features are cached. Versions take turns; a
number is the best of the rounds, as others may use the machine. CPU seconds are those of user and system.
What is imported alone, scikit-learn among others, is for comparison.
"""

import os
import pty
import select
import signal
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from measurement import command, result

OURS = Path(__file__).parents[1] / "src"
ENCODER, LABELS, PATIENCE = "photos", 2, 120
MAKE_PILE = """
import sys
from pathlib import Path
from cached_pile import make_pile
make_pile(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3], int(sys.argv[4]))
"""
ESTIMATOR = "import semishot; semishot.PrototypeClassifier"
IMPORTS = ["import sklearn.base, scipy.special", *(["import torch"] if find_spec("torch") else [])]
"""What others take: the first is what an estimator of scikit-learn needs at least."""

Words = list[str]


def commands(root: Path, out: Path) -> dict[str, Words]:
    """`predict` uses the model of `classify`. A `label` runs until it is ended."""
    semishot = [sys.executable, "-m", "semishot"]
    pile, cached = str(root / "pile"), ["--cache", str(root / "cache")]
    sort = ["--labeled", str(root / "labeled"), "--unlabeled", pile, "--encoder", ENCODER]
    labeling = ["--encoder", ENCODER, "--device", "cpu", "--no-browser"]
    return {
        ESTIMATOR: [sys.executable, "-c", ESTIMATOR],
        "--help": [*semishot, "--help"],
        "classify": [*semishot, "classify", *sort, "--out", str(out / "sorted"), *cached],
        "predict": [*semishot, "predict", str(out / "sorted"), pile, *cached],
        "label": [*semishot, "label", pile, "--out", str(out / "labels"), *cached, *labeling],
    }


def first_output(words: Words, source: Path, text: bytes = b"") -> dict[str, float]:
    """On a terminal: until the first character, or until this text; CPU seconds of Linux's /proc."""
    ours, theirs = pty.openpty()
    begun = time.perf_counter()
    process = subprocess.Popen(
        words,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=environment(source),
        start_new_session=True,
    )
    os.close(theirs)
    try:
        seen = b""
        while not seen or text not in seen:
            if not select.select([ours], [], [], PATIENCE)[0]:
                raise SystemExit(f"{' '.join(words)} says nothing")
            seen += os.read(ours, 4096)
        seconds = time.perf_counter() - begun
        fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
        used = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        return {"first_seconds": seconds, "first_cpu_seconds": used}
    finally:
        process.send_signal(signal.SIGTERM)
        os.close(ours)
        process.wait(PATIENCE)


def whole(words: Words, source: Path) -> dict[str, float]:
    """In a pipe, until it ends."""
    begun = time.perf_counter()
    process = subprocess.Popen(
        words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment(source)
    )
    _, status, used = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - begun
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise SystemExit(f"{' '.join(words)} ends with {process.returncode}")
    return {"seconds": seconds, "cpu_seconds": used.ru_utime + used.ru_stime}


def environment(*sources: Path) -> dict[str, str]:
    """Compiled modules are kept, as they are where it is installed."""
    kept = {name: text for name, text in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "PYTHONPATH": os.pathsep.join(map(str, sources)), "TERM": "xterm"}


def measure(device: Any, quick: bool, before: Path | None = None) -> dict[str, Any]:
    images, rounds = (24, 1) if quick else (1000, 5)
    versions = {"before": before, "now": OURS} if before else {"now": OURS}
    load = os.getloadavg()[0]
    found: dict[tuple[str, str], list[dict[str, float]]] = {}
    with tempfile.TemporaryDirectory(prefix="semishot-") as folder:
        root = Path(folder)
        for version, source in versions.items():  # each has its own keys of features
            arguments = [str(root / version), str(images), ENCODER, str(LABELS)]
            where = environment(source, Path(__file__).parent)
            subprocess.run([sys.executable, "-c", MAKE_PILE, *arguments], check=True, env=where)
        for place in range(rounds + 1):
            for version, source in versions.items():
                for name, words in commands(root / version, root / version).items():
                    taken = {} if name == "label" else whole(words, source)
                    if name != ESTIMATOR:
                        text = b"http" if name == "label" else b""
                        taken |= first_output(words, source, text)
                    if place or quick:  # the first is a warm-up
                        found.setdefault((name, version), []).append(taken)
            for code in IMPORTS:
                taken = whole([sys.executable, "-c", code], OURS)
                found.setdefault((code, ""), []).append(taken)
    rows = [
        {"command": name, "version": version}
        | {field: min(times[field] for times in taken) for field in taken[0]}
        for (name, version), taken in sorted(found.items(), key=lambda item: order(item[0][0]))
    ]
    settings = {"images": images, "rounds": rounds, "load_average_before": load}
    return result("starts", None, quick, settings, rows)


def order(name: str) -> int:
    return [*commands(Path(), Path()), *IMPORTS].index(name)


if __name__ == "__main__":
    command(
        "starts", measure, before={"type": Path, "help": "the folder src of an earlier version"}
    )
