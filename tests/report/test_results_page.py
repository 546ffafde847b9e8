"""Published records, and the page made of them."""

import json
import math
import re
from pathlib import Path

import numpy as np
import pytest

from semishot.commands.main import main
from semishot.errors import InputError
from semishot.paper import published as paper
from semishot.report import paper_tables
from semishot.report import results_page as results
from semishot.report.mask_values import masks_section
from semishot.report.paper_tables import (
    ablations_grid,
    ablations_section,
    curves_section,
    table5_section,
)
from semishot.report.render import shown
from semishot.training.config import Recipe
from semishot.training.records import publish, read_records
from support.optional_torch import module_or_skip
from support.records import ablation, baseline, masks, record

REPOSITORY = Path(__file__).parents[2]
fleets = module_or_skip("semishot.training.fleets")


def markdown(folder: Path) -> str:
    results.write_results(folder, folder / "page.md")
    return (folder / "page.md").read_text(encoding="utf-8")


def test_the_results_page_and_its_figures_are_up_to_date(tmp_path):
    """After `reproduce --publish results`, run `semishot results`."""
    results.write_results(REPOSITORY / "results", tmp_path / "results.md")
    made = sorted(tmp_path.iterdir())
    assert len(made) == 1 + 4
    for path in made:
        assert path.read_bytes() == (REPOSITORY / "docs" / path.name).read_bytes(), path.name


def test_published_files_are_small_and_say_what_they_were_run_with():
    for path in (REPOSITORY / "results").glob("*/[at]*.json"):
        assert path.stat().st_size < 300_000
        for r in read_records(path):
            assert "episode_accuracies" not in r
            assert {"recipe", "train", "split_seed", "device", "versions", "date"} <= set(r)
            if r["updates"]:  # pixels and random weights have none
                assert Recipe(**r["recipe"]).updates == r["updates"]


def test_a_table_that_was_not_run_says_so_and_how(tmp_path):
    publish([*changed("", [0.5]), *changed("x", [0.6])], tmp_path / "omniglot" / "ablations.json")
    page = markdown(tmp_path)
    for name in ("table2", "table3"):
        dataset = paper.TABLES[name].dataset
        assert f"`semishot data prepare {dataset} --source FOLDER`" in page
        assert f"`semishot reproduce {name}`" in page
    assert page.count("Not run. With the data at hand") == 3


def changed(variant: str, accuracies: list[float]) -> list[dict]:
    return [
        ablation(variant=variant, split_seed=seed, accuracy=accuracy, only="some of them")
        for seed, accuracy in enumerate(accuracies)
    ]


def test_differences_are_taken_split_by_split():
    base, other = [0.90, 0.94, 0.97], [0.91, 0.93, 0.99]
    grid = ablations_grid([*changed("", base), *changed("changed", other)])
    ((*_, mean, difference, from_paper),) = grid.rows
    gaps = [100 * (b - a) for a, b in zip(base, other, strict=True)]
    average = sum(gaps) / 3
    error = (sum((g - average) ** 2 for g in gaps) / 2) ** 0.5 / 3**0.5
    half = 4.302653 * error  # Student's t with two degrees of freedom
    assert difference.value == pytest.approx(average)
    assert difference.ratio == pytest.approx(average / error)
    assert mean.value == pytest.approx(100 * np.mean(other))
    interval = f"{average - half:+.2f} to {average + half:+.2f}"
    assert shown(difference) == f"{average:+.2f} ({interval}, t {average / error:+.1f})"
    assert grid.rows[0][2:7] == ["Masked Soft k-Means", "changed", "", "", ""]
    own = np.std(other, ddof=1) * 100 / 3**0.5
    theirs = 0.08 * (10 / 9) ** 0.5  # the paper's 97.30 ± 0.08, with ddof = 1
    assert from_paper.value == pytest.approx(100 * np.mean(other) - 97.30)
    assert from_paper.ratio == round(from_paper.value / math.hypot(own, theirs), 1)


NAMED = {
    "code": "a" * 12,
    "commit": "c" * 12,
    "data": "d" * 16,
    "training": {"code": "a" * 12, "commit": "", "device": "x", "date": "t", "seconds": 1.0},
}


def test_a_table_of_two_states_of_the_code_is_marked_and_told(tmp_path, capsys):
    """Each record names its own; what differs is printed with the number of records."""
    one = [record(split_seed=seed, **NAMED) for seed in range(2)]
    other = record(split_seed=2, **NAMED | {"code": "b" * 12}, versions={"semishot": "0.3.0"})
    file = tmp_path / "results" / "omniglot" / "table1-ren2018.json"
    publish(one, file)
    main(["results", "--folder", str(tmp_path / "results"), "--out", str(tmp_path / "page.md")])
    assert capsys.readouterr().err == ""
    page = (tmp_path / "page.md").read_text(encoding="utf-8")
    assert "Mixed" not in page
    assert f"code {'a' * 12} (commit {'c' * 12}), data {'d' * 16}; 2026-11-15." in page
    publish([other], file)
    main(["results", "--folder", str(tmp_path / "results"), "--out", str(tmp_path / "page.md")])
    said = capsys.readouterr().err.splitlines()
    code, version = f"code {'a' * 12} and {'b' * 12}", "semishot 0.2.0 and 0.3.0"
    assert said == [f"mixed in omniglot/table1-ren2018.json: {code}; {version}"]
    assert f"Mixed: {code}; {version}." in (tmp_path / "page.md").read_text(encoding="utf-8")


PREPARE = "semishot data prepare omniglot --download --reduction cubic --rotations warped --data-root FOLDER"
ELSEWHERE = {"preparation": "cubic-warped"}
TABLE1 = paper.TABLES["table1"]


def table1(**changes) -> list[dict]:
    return [record(split_seed=seed, **changes) for seed in (0, 1)]


@pytest.mark.parametrize(
    ("make", "records", "command"),
    [
        (lambda r: paper_tables.table_section(TABLE1, r), table1(), "table1"),
        (curves_section, table1(), "figure-unlabeled"),
        (table5_section, [baseline()], "table5"),
        (masks_section, [masks()], "figure-masks"),
        (ablations_section, [ablation()], "ablations"),
    ],
)
def test_what_was_measured_on_other_images_is_measured_again_on_them(make, records, command):
    usual, other = make(records), make([r | ELSEWHERE for r in records])
    assert "--data-root" not in usual.commands[0]
    assert usual.commands[0].startswith(f"semishot reproduce {command} ")
    assert other.commands == [PREPARE, f"{usual.commands[0]} --data-root FOLDER"]


def test_the_papers_data_and_the_authors_images_come_first(tmp_path):
    files = {
        "glyphs/table1-demo": table1(dataset="glyphs"),
        "omniglot/table1-a": table1(),
        "omniglot/table1-b": table1(preparation="warped"),
        "omniglot/table1-c": table1(**ELSEWHERE),
    }
    for name, records in files.items():
        publish(records, tmp_path / f"{name}.json")
    text = markdown(tmp_path)
    titles = [line for line in text.splitlines() if line.startswith("## ")][1:5]
    order = ["`cubic-warped`", "20,000 updates", "`warped`", "20,000 updates"]
    assert all(title.endswith(end) for title, end in zip(titles, order, strict=True)), titles
    assert "glyphs" in titles[3]
    assert "| Table 1, omniglot, cubic-warped | ren2018 | 20,000 | 1 (of 10) | 0 | 0 | 1 |" in text


def test_an_empty_results_folder_is_named(tmp_path):
    with pytest.raises(InputError, match="no result files"):
        markdown(tmp_path)


def test_the_pretrained_model_is_there_and_an_unknown_one_is_refused():
    assert fleets.find_model("pretrained:omniglot").stat().st_size < 600_000
    with pytest.raises(
        InputError, match="no pretrained model 'birds'; this version has pretrained:omniglot"
    ):
        fleets.find_model("pretrained:birds")


@pytest.mark.slow
def test_pretrained_omniglot_reproduces_its_number(tmp_path, capsys):
    source = REPOSITORY.parent / "shared" / "data" / "omniglot"
    if not source.is_dir():
        pytest.skip(f"real Omniglot not found at {source}")
    main(["data", "prepare", "omniglot", "--source", str(source), "--data-root", str(tmp_path)])
    capsys.readouterr()
    shape = ["--distractors", "5", "--device", "cpu", "--json"]
    main(["evaluate", "--model", "pretrained:omniglot", *shape, "--data-root", str(tmp_path)])
    (record,) = json.loads(capsys.readouterr().out)
    from safetensors import safe_open

    with safe_open(fleets.find_model("pretrained:omniglot"), "pt") as file:
        published = json.loads(file.metadata()["result"])
    assert abs(record["accuracy"] - published["accuracy"]) < 5e-4  # another device rounds otherwise
    assert published["accuracy"] > 0.99


NUMBERS = re.compile(r"\d+\.\d+ (?:± \d+\.\d+|\(PRWN\))")


@pytest.mark.parametrize("page", ["README.md", "docs/paper_results.md", "docs/reproduce.md"])
def test_a_number_with_its_error_stands_on_the_results_page_too(page):
    """So that no sentence keeps a number that was measured again."""
    written = (REPOSITORY / "docs" / "results.md").read_text(encoding="utf-8")
    for number in NUMBERS.findall((REPOSITORY / page).read_text(encoding="utf-8")):
        assert number in written, number


def test_the_sentences_on_what_agrees_are_those_of_the_files():
    """In docs/paper_results.md, as words."""
    table, counts = paper.TABLES["table1"], []  # that agree, are above, are below
    for file in ("table1-ren2018-cubic-warped.json", "table1-ren2018.json"):
        ours = read_records(REPOSITORY / "results" / "omniglot" / file)
        grids = [paper_tables.table_grid(table, ours, 1, m) for m in (5, 10)]
        counts += [paper_tables.verdicts(paper_tables.differences(grid)) for grid in grids]
    assert counts == [(8, 0, 2), (4, 6, 0), (0, 8, 2), (1, 9, 0)]
    page = (REPOSITORY / "docs" / "paper_results.md").read_text(encoding="utf-8")
    text = " ".join(page.split())
    assert "Eight of ten numbers agree with the paper's" in text
    assert "four numbers agree and six are higher" in text
    assert "no number agrees: eight are higher than the paper's and two lower" in text


# Tables inside other pages

FILE = "glyphs/table1-demo.json"
MARK = f"<!-- table: {FILE}, 1-shot, M = 5 -->"
TABLE = """| model | no distractors | w/ distractors |
| --- | ---: | ---: |
| Masked Soft k-Means | - | 80.00 ± 10.00 |"""
FILLED = f"Before.\n\n{MARK}\n\n{TABLE}\n\n<!-- /table -->\n\nAfter.\n"


@pytest.fixture
def folder(tmp_path):
    own = [
        record(dataset="glyphs", split_seed=seed, accuracy=accuracy)
        for seed, accuracy in enumerate((0.7, 0.9))
    ]
    publish(own, tmp_path / "results" / FILE)
    return tmp_path / "results"


def test_a_page_is_filled_and_filled_again_it_is_the_same(folder, tmp_path, capsys):
    page, out = tmp_path / "page.md", tmp_path / "results.md"
    page.write_text(f"Before.\n\n{MARK}\nold words\n<!-- /table -->\n\nAfter.\n", encoding="utf-8")
    for _ in range(2):
        main(["results", "--folder", str(folder), "--out", str(out), "--fill", str(page)])
        assert page.read_text(encoding="utf-8") == FILLED
        assert capsys.readouterr().out == f"{out}\n{page}\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("no mark", r"page\.md: a marked table has a line .* 0 have both"),
        (f"{MARK}\n{MARK}\n<!-- /table -->\n", "1 have both"),
        (FILLED.replace("demo", "other"), r"there is no result file .*table1-other\.json"),
        (FILLED.replace("M = 5", "M = 10"), r"table1-demo\.json has nothing of 1-shot, M = 10"),
    ],
)
def test_what_cannot_be_filled_is_said_before_anything_is_written(folder, tmp_path, text, message):
    page, out = tmp_path / "page.md", tmp_path / "results.md"
    page.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=message):
        results.write_results(folder, out, [page])
    assert page.read_text(encoding="utf-8") == text
    assert not out.exists()


def test_the_marked_tables_of_the_documents_are_up_to_date():
    """Otherwise: `semishot results --fill docs/paper_results.md`."""
    pages = [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").glob("*.md"))]
    marked = [page for page in pages if results.BEGINS in page.read_text(encoding="utf-8")]
    assert [page.name for page in marked] == ["paper_results.md"]
    for page in marked:
        made = results.filled_page(page, REPOSITORY / "results")
        assert made == page.read_text(encoding="utf-8"), page
