"""Published results: `docs/results.md` and its pictures, from the files under `results/` alone."""

from pathlib import Path

from semishot.errors import InputError
from semishot.paper import published
from semishot.report import plots
from semishot.report.ablation_tables import ablations_section, choice_section
from semishot.report.baseline_tables import table5_section
from semishot.report.curves import curves_section
from semishot.report.mask_tables import masks_section
from semishot.report.rendering import as_markdown
from semishot.report.tables import table_section
from semishot.system.files import write_whole
from semishot.system.open_files import reading
from semishot.training.records import MaskRecord, as_choice, read_records, read_result_file

LEAD = """# Results

Generated from the files in `results/` by `semishot results`; do not edit.

Accuracies in %, mean ± standard error over labeled/unlabeled splits (std with ddof = 0 over the
square root of the number of splits, as in the paper), 600 test episodes per split."""


def write_results(folder: Path, out: Path) -> None:
    """The page, and the pictures beside it."""
    text = results_markdown(folder)
    for path in figures(folder):
        with reading(path):
            plots.accuracy_over_unlabeled(read_records(path), out.with_name(picture_name(path)))
    for path in mask_figures(folder):
        with reading(path):
            plots.draw_masks(mask_records(path), out.with_name(picture_name(path)))
    write_whole(out, text)


def results_markdown(folder: Path) -> str:
    """Every published table, with the device it was run on and how to run it again."""
    parts = [LEAD]
    for name, table in published.TABLES.items():
        found = sorted(folder.glob(f"*/{name}-*.json"))
        for path in found:
            with reading(path):
                parts.append(as_markdown(table_section(name, table, read_records(path))))
        if not found:
            parts.append(not_run(name, table))
    for path in figures(folder):
        with reading(path):
            section = curves_section(read_records(path))
            picture = f"![{section.title}]({picture_name(path)})"
            parts.append(as_markdown(section, above=picture))
    for path in sorted(folder.glob("*/choice*.json")):
        parts.append(as_markdown(choice_section(as_choice(read_result_file(path), path))))
    for path in sorted(folder.glob("*/ablations*.json")):
        with reading(path):
            ablations = [r for r in read_records(path) if r["kind"] == "ablation"]
            parts.append(as_markdown(ablations_section(ablations)))
    for path in sorted(folder.glob("*/table5*.json")):
        with reading(path):
            baselines = [r for r in read_records(path) if r["kind"] == "baseline"]
            parts.append(as_markdown(table5_section(baselines)))
    for path in mask_figures(folder):
        with reading(path):
            picture = f"![Mask values ({path.parent.name})]({picture_name(path)})"
            parts.append(as_markdown(masks_section(mask_records(path)), below=picture))
    if not any(folder.glob("*/*.json")):
        raise InputError(
            f"no result files in {folder}; `semishot reproduce table1 --publish {folder}`"
        )
    return "\n\n".join(parts) + "\n"


def not_run(name: str, table: published.Table) -> str:
    return (
        f"## {table.title} ({table.dataset})\n\nThis table has not been run. With the data at hand: "
        f"`semishot data prepare {table.dataset} --source FOLDER`, then `semishot reproduce {name}`."
    )


def figures(folder: Path) -> list[Path]:
    """The result files that become a figure of the page."""
    return sorted(folder.glob(f"*/{published.FIGURE_UNLABELED}-*.json"))


def mask_figures(folder: Path) -> list[Path]:
    return sorted(folder.glob("*/figure-masks.json"))


def mask_records(path: Path) -> list[MaskRecord]:
    return [r for r in read_records(path) if r["kind"] == "masks"]


def picture_name(path: Path) -> str:
    return f"{path.stem}-{path.parent.name}.png"
