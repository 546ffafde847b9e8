"""Preparing tieredImageNet: images per second with all cores, memory, and a kill in the middle.

The command runs on a made-up part of an ILSVRC-12 tree, photographs of noise that have the size, the
spectrum and the bytes of photographs. Memory is that of Linux's /proc, anonymous pages alone.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from fake_pool import IMAGES
from measurement import command, result
from semishot.data.pool import open_pool
from semishot.data.pool_builder import BATCH, MOST_WORKERS
from semishot.datasets.tiered_imagenet import class_list

WIDTH, HEIGHT, QUALITY = 500, 375, 95  # about 105,000 bytes, ILSVRC-12's mean is 110,000
CLASSES = 20
MIB = 2**20
FAKE = Path(__file__).with_name("fake_pool.py")


def canvas(rng: np.random.Generator, width: int, height: int) -> NDArray[np.uint8]:
    """(H, W, 3) of noise at every scale, the coarse stronger than the fine, as in photographs."""
    total = np.zeros((height, width, 3))
    for scale in (2**octave for octave in range(9)):
        small = rng.normal(size=(height // scale + 2, width // scale + 2, 3)).astype(np.float32)
        small = 0.3 * small + 1.4 * small.mean(2, keepdims=True)  # colors go together
        planes = [
            Image.fromarray(plane).resize((width, height)) for plane in small.transpose(2, 0, 1)
        ]
        total += scale**0.25 * np.stack([np.asarray(plane) for plane in planes], axis=2)
    return np.clip(118 + 52 * (total - total.mean()) / total.std(), 0, 255).astype(np.uint8)


def make_tree(source: Path, images: int, width: int, height: int) -> int:
    """Write train/CLASS/CLASS_NUMBER.JPEG, each another part of one canvas; the bytes written."""
    rng, written = np.random.default_rng(0), 0
    whole = Image.fromarray(canvas(rng, 4 * width, 4 * height))
    names = [c.name for c in class_list()[:CLASSES]]
    for place in range(images):
        name = names[place % CLASSES]
        left, top = rng.integers(0, 3 * width), rng.integers(0, 3 * height)
        path = source / "train" / name / f"{name}_{place}.JPEG"
        path.parent.mkdir(parents=True, exist_ok=True)
        part = whole.crop((left, top, left + width, top + height))
        part.save(path, quality=QUALITY)
        written += path.stat().st_size
    return written


def watch(arguments: list[str], stop: Callable[[], bool] = lambda: False) -> dict[str, float]:
    """Run a command to its end, or kill it when `stop` says so: seconds and peaks of memory in MiB."""
    peak = {"parent_mib": 0.0, "worker_mib": 0.0, "together_mib": 0.0}
    begun = time.perf_counter()
    running = subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    while running.poll() is None:
        if stop():
            running.kill()
        parent, *others = (anonymous(pid) / MIB for pid in family(running.pid))
        now = {"parent_mib": parent, "worker_mib": max(others, default=0.0)}
        now["together_mib"] = parent + sum(others)
        peak = {name: max(value, now[name]) for name, value in peak.items()}
        time.sleep(0.02)
    seconds = time.perf_counter() - begun
    _, error = running.communicate()
    if running.returncode > 0:
        raise RuntimeError(error.decode())
    return {"seconds": seconds, **peak}


def family(pid: int) -> list[int]:
    """The process, and those it has started."""
    children = Path(f"/proc/{pid}/task/{pid}/children")
    try:
        return [pid, *map(int, children.read_text().split())]
    except (FileNotFoundError, ProcessLookupError):
        return [pid]


def anonymous(pid: int) -> int:
    """Bytes of memory that are no part of a file; 0 if the process has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return sum(1024 * int(line.split()[1]) for line in lines if line.startswith("RssAnon"))


def measure(device: torch.device, quick: bool) -> dict[str, Any]:
    """The device has no part in it."""
    images, width, height = (5 * BATCH, 100, 75) if quick else (20_000, WIDTH, HEIGHT)
    rows = []
    with tempfile.TemporaryDirectory() as temporary:
        source, root = Path(temporary) / "ilsvrc", Path(temporary) / "root"
        size = make_tree(source, images, width, height)
        prepare = [sys.executable, "-m", "semishot", "data", "prepare", "tiered-imagenet"]
        prepare += ["--partial", "--source", str(source), "--data-root"]
        rows.append({"build": "in one go", "images": images, **watch([*prepare, str(root / "a")])})

        log = root / "b" / ".tiered-imagenet.building" / "done.txt"

        def kept() -> int:
            return BATCH * len(log.read_text().splitlines()) if log.exists() else 0

        killed = watch([*prepare, str(root / "b")], lambda: kept() >= images // 2)
        left = images - kept() if log.exists() else images  # a quick one may have been quicker
        rows.append({"build": "until it was killed", "images": images - left or images, **killed})
        again = watch([*prepare, str(root / "b")])
        rows.append({"build": "the rest of it", "images": left, **again})
        pools = [open_pool(root / name / "tiered-imagenet").fingerprint for name in "ab"]
        if pools[0] != pools[1]:
            raise RuntimeError("the build that was killed has other pixels")
        tiny = 5 * BATCH if quick else IMAGES
        fake = watch([sys.executable, str(FAKE), str(root / "fake"), str(tiny)])
        rows.append({"build": "images of one pixel", "images": tiny, **fake})
    for row in rows:
        row["images_per_second"] = row["images"] / row["seconds"]
        row["minutes_for_all"] = IMAGES / max(row["images_per_second"], 1e-9) / 60
    settings = {
        "width": width,
        "height": height,
        "bytes_per_image": round(size / images),
        "all": IMAGES,
        "workers": min(os.cpu_count() or 1, MOST_WORKERS),
    }
    return result("build_pool", device, quick, settings, rows)


if __name__ == "__main__":
    command("build_pool", measure)
