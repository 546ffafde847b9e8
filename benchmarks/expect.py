"""Short tables of the benchmark of piles, in docs/accuracy.md and docs/piles.md: run it without arguments."""

import json
from collections import defaultdict
from pathlib import Path
from statistics import mean

from pages import between

ROOT = Path(__file__).parents[1]
PAGE, BEGIN, END = ROOT / "docs" / "accuracy.md", "<!-- expect -->", "<!-- /expect -->"
PILES, TABLES = ROOT / "docs" / "piles.md", ROOT / "docs" / "piles_tables.md"
FILES = [ROOT / "results" / "piles" / f"{part}.json" for part in ("report", "choose")]
METHOD, ENCODER = "semishot", ", photos:"
WAYS = {2: "2", 5: "5", 10: "10", 12: "12", 20: "20", 50: "50"}
SHOTS = (1, 3, 5, 10)


def table() -> str:
    """Photographs by the default encoder, without traps: means over the cells of a way and a shot."""
    result = json.loads(next(path for path in FILES if path.exists()).read_text("utf-8"))
    accuracy, right = (result["figures"].index(name) for name in ("accuracy", "sorted"))
    found = defaultdict(list)
    for cell in result["cells"]:
        if cell["kind"] == "photographs" and ENCODER in cell["cell"] and not cell["note"]:
            figures = cell["methods"][METHOD]
            if figures[accuracy] and figures[right]:
                pair = mean(figures[accuracy]), mean(figures[right])
                found[cell["shape"]["way"], cell["shape"]["shot"]].append(pair)
    ways = [way for way in WAYS if sum((way, shot) in found for shot in SHOTS) > 1]
    shots = [shot for shot in SHOTS if any((way, shot) in found for way in ways)]
    lines = [
        "| classes | " + " | ".join(f"{s} label{'s' * (s > 1)} of each" for s in shots) + " |",
        "|---:|" + "---:|" * len(shots),
    ]
    for way in ways:
        cells = []
        for shot in shots:
            pairs = found.get((way, shot))
            cells.append(
                " / ".join(f"{100 * mean(x):.0f}" for x in zip(*pairs, strict=True))
                if pairs
                else ""
            )
        lines.append(f"| {way} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def reported() -> str:
    """The table over all reported cells, from docs/piles_tables.md."""
    _, part = TABLES.read_text(encoding="utf-8").split("## The reported part")
    return next(block for block in part.split("\n\n") if block.startswith("| All "))


if __name__ == "__main__":
    text = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(between(text, BEGIN, END, [table()]), encoding="utf-8")
    text = PILES.read_text(encoding="utf-8")
    marks = "<!-- reported -->", "<!-- /reported -->"
    PILES.write_text(between(text, *marks, [reported()]), encoding="utf-8")
