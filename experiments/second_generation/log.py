"""Job results of `second_generation.train` -> one file: every variant, and what each change is worth.

PYTHONPATH=src:experiments python -m second_generation.log OUT FOLDER...
"""

import json
import sys
from pathlib import Path

import numpy as np

from json_lines import write_lines

CELLS = ("1/0", "1/5", "5/0", "5/5")
NAMES = {
    "1/0": "1-shot",
    "1/5": "1-shot, distractors",
    "5/0": "5-shot",
    "5/5": "5-shot, distractors",
}
USUAL = {"0": ((8.0, None), 5), "5": ((12.0, 0.3), 2)}
"""Scale and threshold, and steps, by distractor classes: the same for all variants."""

TITLE = "How the second generation of `semishot` was chosen for miniImageNet"
ABOUT = (
    "Accuracy in % on the 16 validation classes, 5-way, 20 unlabeled images of each class, 20 queries; no "
    "test image was looked at. Every variant is read at one setting: without distractors soft k-means, "
    "scale 8, 5 steps; with 5 distractor classes N + 1 clusters, scale 12, threshold 0.3, 2 steps. "
    "`best_setting` is the best of the settings tried. Errors over splits and of paired differences have "
    "ddof = 1; two splits are one degree of freedom."
)

PAIRS = [
    # what, (job, variant), (job, variant) it is compared with
    ("stage 1 alone: no rotation loss", "A rot0", "A base"),
    ("stage 1 alone: rotation loss weighs 2, not 1", "A rot2", "A base"),
    ("stage 1 alone: rotation loss of unlabeled images", "A unl", "A base"),
    ("stage 1 alone: class loss of the turned copies too, 0.5", "A turned", "A base"),
    ("stage 1 alone: running mean subtracted", "A centered", "A base"),
    ("stage 1 alone: weight decay 1e-3", "A decay1e-3", "A base"),
    ("stage 1 alone: crops from 50 %", "A crop.5", "A base"),
    (
        "class loss of turned copies and weight decay 1e-3, after stage 2",
        "F3 s2<t-dec1e-3",
        "F3 s2<base",
    ),
    ("weight decay 2e-3, not 1e-3, after stage 2", "F3 s2<t-dec2e-3", "F3 s2<t-dec1e-3"),
    ("colors in stage 1, after stage 2", "F3 s2<tc-dec1e-3", "F3 s2<t-dec1e-3"),
    (
        "one class for each class and rotation instead (joint), after stage 2",
        "F2 s2<joint",
        "F2 s2<t1",
    ),
    (
        "soft labels of 9 teachers, also on unlabeled images, after stage 2",
        "F2 s2<d-unl-crop.5",
        "C2 s2",
    ),
    (
        "soft labels of 1 teacher, also on unlabeled images, after stage 2",
        "F2 s2<d1-unl-crop.5",
        "C2 s2",
    ),
    ("soft labels on labeled images alone, not also on unlabeled", "F3 s2<d-same", "F3 s2<u0"),
    ("student: weight decay 1e-3", "F3 s2<u-dec1e-3", "F3 s2<u0"),
    ("student: unlabeled images weigh 2, not 1", "F3 s2<u-w2", "F3 s2<u0"),
    ("student: no labels of its own (alpha 1)", "F3 s2<u-a1", "F3 s2<u0"),
    ("student: no rotation loss", "F3 s2<u-rot0", "F3 s2<u0"),
    ("student: teacher's temperature 2", "F3 s2<u-temp2", "F3 s2<u0"),
    ("teacher and student, not the teacher alone; 4,000 steps each", "C4 w16", "C4 w16<t-dec1e-3"),
    ("student, not plain; 10,000 steps both, then 4,000 episodes", "E4k e4k<S10k", "E4k e4k<t10k"),
    (
        "student, not plain; 10,000 steps both, then 14,000 episodes",
        "E14k e14k<S10k",
        "E14k e14k<t10k",
    ),
    ("stage 2: rate 1e-3, not 3e-4 (8,000 episodes)", "C2 s2-lr1e-3", "C2 s2"),
    ("stage 2: rate 5e-4, not 1e-3 (4,000 episodes)", "C3 c-lr5e-4", "F3 s2<u0"),
    ("stage 2: rate 2e-3, not 1e-3 (4,000 episodes)", "C3 c-lr2e-3", "F3 s2<u0"),
    ("stage 2: three refinement steps, not one", "C2 s2-deep", "C2 s2"),
    ("stage 2: half of the episodes with one shot", "C2 s2-oneshot", "C2 s2"),
    ("stage 2: class loss as well, 0.5", "C2 s2-head", "C2 s2"),
    ("stage 2: PRWN's walking loss, 0.5", "C2 s2-walk", "C2 s2"),
    ("stage 2: no episode with distractors", "C2 s2-noD", "C2 s2"),
    ("stage 2: average of the weights (0.999)", "C2 s2+ema", "C2 s2"),
    ("stage 2: no loss with the initial prototypes, not 0.5", "C3 c-w0=0", "F3 s2<u0"),
    ("stage 2: decoupled weight decay 0.05", "C3 c-wd.05", "F3 s2<u0"),
    ("stage 2: crops from 50 %, not 80 %", "C2 s2-crop.5", "C2 s2"),
    ("stage 2: no crops, not from 80 %", "C3 c-crop1", "F3 s2<u0"),
    ("stage 2: crops from 90 %, not none", "C4 w16-crop.9", "C4 w16"),
    ("stage 2: 10 unlabeled of each class, not 5", "D-10way-M10 D-10way-M10", "F3 s2<u0"),
    ("stage 2: 5 + 5 classes, 20 unlabeled, 10 queries", "D-5way-M20 D-5way-M20", "F3 s2<u0"),
    ("stage 2: 16 + 16 classes, not 10 + 10", "D-16way D-16way", "F3 s2<u0"),
    ("stage 2: 24 + 24 classes and 3 queries, not 16 + 16 and 5", "D24 w24", "C4 w16"),
    ("stage 2: half of the classes turned at random", "C4 w16-turning.5", "C4 w16"),
    (
        "10,000 steps of stage 1 (student), not 4,000; 4,000 episodes",
        "E4k e4k<S10k",
        "C4 w16-turning.5",
    ),
    (
        "10,000 steps of stage 1 (student), not 4,000; 14,000 episodes",
        "E14k e14k<S10k",
        "E14k e14k<S4k",
    ),
    ("14,000 episodes of stage 2, not 4,000; plain stage 1", "E14k e14k<t10k", "E4k e4k<t10k"),
    ("14,000 episodes of stage 2, not 4,000; student", "E14k e14k<S10k", "E4k e4k<S10k"),
]


def at_usual(row: dict, job: dict, cell: str) -> float:
    pair, steps = USUAL[cell[-1]]
    pairs = [tuple(p) for p in job["settings"]]
    return row[cell][pairs.index(pair)][job["steps_read"].index(steps)]


def entry(job: dict, name: str, rows: list[dict]) -> dict:
    values = np.array([[at_usual(r, job, c) for c in CELLS] for r in rows])  # (S, 4)
    best = np.array([np.mean([r[c] for r in rows], 0).max() for c in CELLS])
    skip = {"id", "split", "job", "learned", *CELLS, *(f"{c} se" for c in CELLS)}
    count = len(rows)
    error = values.std(0, ddof=1) / count**0.5 if count > 1 else np.full(4, np.nan)
    about = {k: v for k, v in rows[0].items() if k not in skip}
    if "from" in about:
        about["from"] = about["from"].rsplit("/", 1)[0]
    fleet = {
        k: job[k] for k in ("way", "shot", "query", "unlabeled", "distractors", "depth") if k in job
    }
    return {
        "job": job["name"],
        "variant": name,
        "stage": int(job["kind"][-1]),
        "steps": job["steps"],
        "recipe": {**about, **fleet},
        "splits": [r["split"] for r in rows],
        "episodes": job["validation_episodes"],
        "supervised": {
            s: round(float(np.mean([r[f"{s}/0"][0][0] for r in rows])), 2) for s in ("1", "5")
        },
        "accuracy": {
            NAMES[c]: [round(float(v), 2) for v in values[:, i]] for i, c in enumerate(CELLS)
        },
        "mean": {NAMES[c]: round(float(values[:, i].mean()), 2) for i, c in enumerate(CELLS)},
        "error_over_splits": {NAMES[c]: round(float(error[i]), 2) for i, c in enumerate(CELLS)},
        "error_over_episodes": {
            NAMES[c]: round(float(np.mean([r[f"{c} se"] for r in rows])), 2) for c in CELLS
        },
        "seconds_per_run": round(job["train_seconds"] / job["fleet"], 2),
        "fleet": job["fleet"],
        "device": job["device"],
        "best_setting": {NAMES[c]: round(float(best[i]), 2) for i, c in enumerate(CELLS)},
    }


def main(out: Path, folders: list[Path]) -> None:
    entries, jobs, table = [], [], {}
    for folder in folders:
        for path in sorted(folder.glob("*.json"), key=lambda p: p.stat().st_mtime):
            held = json.loads(path.read_text())
            job, rows = held["job"], held["rows"]
            if any(j["job"] == job["name"] for j in jobs):
                continue
            job["fleet"] = len({r["id"].replace("+ema", "") for r in rows}) or 1
            names = dict.fromkeys(r["id"].rsplit("/", 1)[0] for r in rows)
            jobs.append(
                {
                    "job": job["name"],
                    "stage": int(job["kind"][-1]),
                    "steps": job["steps"],
                    "images_per_second": job["images_per_second"],
                    "train_seconds": job["train_seconds"],
                    "wall_seconds": job["wall_seconds"],
                    "device": job["device"],
                }
            )
            for name in names:
                mine = [r for r in rows if r["id"].rsplit("/", 1)[0] == name]
                entries.append(entry(job, name, mine))
                key = f"{job['name']} {name}"
                table[key] = {
                    r["split"]: np.array([at_usual(r, job, c) for c in CELLS]) for r in mine
                }
    worth = []
    for what, one, other in PAIRS:
        splits = sorted(table[one].keys() & table[other].keys())
        d = np.array([table[one][s] - table[other][s] for s in splits])  # (S, 4)
        d = np.concatenate([d, d.mean(1, keepdims=True)], 1)
        error = d.std(0, ddof=1) / len(d) ** 0.5
        keys = [*(NAMES[c] for c in CELLS), "mean of the four"]
        worth.append(
            {
                "change": what,
                "variant": one,
                "compared_with": other,
                "splits": splits,
                "difference": {k: round(float(v), 2) for k, v in zip(keys, d.mean(0), strict=True)},
                "error": {k: round(float(v), 2) for k, v in zip(keys, error, strict=True)},
            }
        )
        print(
            f"{what:<75} {d[:, 4].mean():+.2f} +- {error[4]:.2f} ({len(d)})  "
            + " ".join(f"{v:+.2f}" for v in d.mean(0)[:4])
        )
    more = json.loads(out.read_text()) if out.exists() else {}
    held = {"title": TITLE, "about": ABOUT, **more}
    held.update(worth=worth, variants=entries, jobs=jobs)
    write_lines(out, held)


if __name__ == "__main__":
    main(Path(sys.argv[1]), [Path(p) for p in sys.argv[2:]])
