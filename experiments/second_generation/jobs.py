"""The jobs of `second_generation.train`, round by round, as they were run.

PYTHONPATH=experiments python -m second_generation.jobs FOLDER: writes FOLDER/ROUND/NN_NAME.json
"""

import json
import sys
from pathlib import Path
from typing import Any

Fields = dict[str, Any]
WIDE = {"way": 16, "distractors": 16, "depth": 1}
TURNED = {"turned": 0.5}


def runs(variants: dict[str, Fields], splits: int) -> list[Fields]:
    out = []
    for name, changes in variants.items():
        for split in range(splits):
            run = {"id": f"{name}/{split}", "split": split, **changes}
            if "from" in run:
                run["from"] = f"{run['from']}/{split}"
            out.append(run)
    return out


def trained(
    name: str, stage: int, steps: int, variants: dict[str, Fields], splits: int, **more: Any
) -> Fields:
    kind = f"stage{stage}"
    return {"name": name, "kind": kind, "steps": steps, **more, "runs": runs(variants, splits)}


def taught(name: str, teachers: list[str], splits: int, **more: Any) -> Fields:
    of = {str(s): [f"{teacher}/{s}" for teacher in teachers] for s in range(splits)}
    return {"name": name, "kind": "teach", "teachers": of, **more}


def first() -> list[Fields]:
    """Stage 1 alone. (The stage 2 that should have followed was cut off with the machine.)"""
    variants = {
        "base": {},
        "rot0": {"rotation": 0},
        "rot2": {"rotation": 2},
        "unl": {"other": 1},
        "turned": TURNED,
        "centered": {"centered": 1},
        "decay1e-3": {"decay": 1e-3},
        "crop.5": {"crop": 0.5},
    }
    return [trained("A", 1, 4000, variants, 3)]


def second() -> list[Fields]:
    """Stage 1 with turned copies, soft labels, and what stage 2 makes of them."""
    plain = {
        "t1": {"turned": 1},
        "t1-rot.5": {"turned": 1, "rotation": 0.5},
        "t-crop.5": {**TURNED, "crop": 0.5},
        "t1-crop.35": {"turned": 1, "crop": 0.35},
        "t-dec1e-3": {**TURNED, "decay": 1e-3},
        "t-crop.5-dec1e-3": {**TURNED, "crop": 0.5, "decay": 1e-3},
        "t-color.3": {**TURNED, "color": 0.3},
        "joint": {"joint": 1, "rotation": 0},
        "t-rot0": {**TURNED, "rotation": 0},
    }
    u = {"other": 1, "soft_unlabeled": 1, "alpha": 0.5, "soft": "T9", **TURNED}
    students = {
        "d-unl": u,
        "d-unl-crop.5": {**u, "crop": 0.5},
        "d-same-crop.5": {"alpha": 0.5, "soft": "T9", **TURNED, "crop": 0.5},
        "d1-unl-crop.5": {**u, "soft": "T1", "crop": 0.5},
    }
    b = {"w0": 0.5, "w1": 1, "w3": 0}
    changes: dict[str, Fields] = {
        "s2": {},
        "s2-lr1e-3": {"lr": 1e-3},
        "s2-deep": {"w1": 0, "w3": 1},
        "s2-oneshot": {"one_shot": 0.5},
        "s2-head": {"w_head": 0.5},
        "s2-walk": {"w_walk": 0.5},
        "s2-crop.5": {"crop": 0.5},
        "s2-noD": {"with_distractors": 0},
    }
    episodes = {name: {"from": "t-crop.5", **b, **change} for name, change in changes.items()}
    sources = ("t1", "t1-crop.35", "t-dec1e-3", "joint", "d-unl", "d-unl-crop.5", "d1-unl-crop.5")
    return [
        trained("A2", 1, 4000, plain, 2),
        taught("T9", list(plain), 2),
        taught("T1", ["t-crop.5"], 2),
        trained("B2", 1, 4000, students, 2),
        trained("C2", 2, 8000, episodes, 2, depth=3, ema_too=True),
        trained("F2", 2, 8000, {f"s2<{n}": {"from": n, **b} for n in sources}, 2, depth=3),
    ]


def third() -> list[Fields]:
    """Students of one teacher; rates, crops and shapes of stage 2."""
    plain: dict[str, Fields] = {
        "base": {},
        "t-dec1e-3": {**TURNED, "decay": 1e-3},
        "t-dec2e-3": {**TURNED, "decay": 2e-3},
        "tc-dec1e-3": {**TURNED, "color": 0.3, "decay": 1e-3},
    }
    u = {"other": 1, "soft_unlabeled": 1, "alpha": 0.5, "soft": "T", **TURNED, "crop": 0.5}
    students = {
        "u0": u,
        "u-dec1e-3": {**u, "decay": 1e-3},
        "u-w2": {**u, "soft_unlabeled": 2},
        "u-a1": {**u, "alpha": 1},
        "u-rot0": {**u, "rotation": 0},
        "u-temp2": {**u, "soft": "TS"},
        "d-same": {"alpha": 0.5, "soft": "T", **TURNED, "crop": 0.5},
    }
    b = {"from": "u0", "lr": 1e-3}
    changes = {
        "c-lr5e-4": {"lr": 5e-4},
        "c-lr2e-3": {"lr": 2e-3},
        "c-crop1": {"crop": 1.0},
        "c-w0=0": {"w0": 0},
        "c-wd.05": {"decay": 0.05},
    }
    shapes: dict[str, Fields] = {
        "D-5way-M20": {"way": 5, "distractors": 5, "unlabeled": 20, "query": 10},
        "D-10way-M10": {"unlabeled": 10},
        "D-16way": WIDE,
    }
    after = {f"s2<{n}": {"from": n, "lr": 1e-3} for n in [*students, *plain]}
    return [
        trained("A3", 1, 4000, plain, 2),
        taught("T", ["t-dec1e-3"], 2),
        taught("TS", ["t-dec1e-3"], 2, temperature=2.0),
        trained("B3", 1, 4000, students, 2, episodes=0),
        trained("F3", 2, 4000, after, 2, depth=1),
        trained("C3", 2, 4000, {n: {**b, **c} for n, c in changes.items()}, 2, depth=1),
        *(trained(n, 2, 4000, {n: b}, 2, **{"depth": 1, **s}) for n, s in shapes.items()),
    ]


def fourth() -> list[Fields]:
    """Length, with and without a teacher; and the time of ten runs."""
    t = {**TURNED, "decay": 1e-3}
    u = {"other": 1, "soft_unlabeled": 2, "alpha": 0.5, "soft": "T", **t, "crop": 0.5}
    b = {"from": "S4k", "lr": 1e-3, "crop": 1.0}
    changes: dict[str, Fields] = {
        "w16": {},
        "w16-turning.5": {"turning": 0.5},
        "w16-crop.9": {"crop": 0.9},
        "w16<t-dec1e-3": {"from": "t-dec1e-3"},
    }
    e = {"lr": 1e-3, "crop": 1.0, "turning": 0.5}
    ten = [{"id": f"time/{i}", "split": i, **t} for i in range(10)]
    again = [{**run, "from": run["id"]} for run in ten]
    timed = {"steps": 300, "episodes": 0, "save": False}
    return [
        trained("A4", 1, 4000, {"t-dec1e-3": t}, 3, episodes=0),
        taught("T", ["t-dec1e-3"], 3),
        trained("S4", 1, 4000, {"S4k": u}, 3, episodes=0),
        trained("C4", 2, 4000, {n: {**b, **c} for n, c in changes.items()}, 3, **WIDE),
        trained("D24", 2, 4000, {"w24": b}, 3, way=24, distractors=24, query=3, depth=1),
        trained("S10", 1, 10000, {"S10k": u, "t10k": t}, 3, episodes=0),
        trained(
            "E4k", 2, 4000, {f"e4k<{n}": {"from": n, **e} for n in ("S10k", "t10k")}, 3, **WIDE
        ),
        trained(
            "E14k",
            2,
            14000,
            {f"e14k<{n}": {"from": n, **e} for n in ("S10k", "t10k", "S4k")},
            3,
            **WIDE,
        ),
        {"name": "time1", "kind": "stage1", **timed, "runs": ten},
        {"name": "time2", "kind": "stage2", **timed, **WIDE, "runs": again},
    ]


def main(out: Path) -> None:
    for number, jobs in enumerate((first(), second(), third(), fourth()), 1):
        folder = out / str(number)
        folder.mkdir(parents=True)
        for place, job in enumerate(jobs):
            (folder / f"{place:02}_{job['name']}.json").write_text(json.dumps(job))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
