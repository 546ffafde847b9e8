"""The report: every record is shown once, beside the paper's cell, escaped, in a page of its own."""

import base64
import hashlib
import json
import re
from pathlib import Path

import pytest

from semishot.commands.main import main
from semishot.paper import published as paper
from semishot.report import charts
from semishot.report.other_tables import others_section
from semishot.report.render import shown
from semishot.report.sections import make_sections, read_results, tables_and_figures
from semishot.training.records import identity, read_records
from support.commands import refusal
from support.optional_torch import HAS_TORCH, REASON
from support.presets import shorten

PUBLISHED = Path(__file__).parents[2] / "results"
TABLE1 = PUBLISHED / "omniglot" / "table1-ren2018.json"
HOSTILE = "<script>document.title = 'taken'</script>\"'><img src=x onerror=alert(1)>"


@pytest.fixture
def short_presets(monkeypatch):
    shorten(monkeypatch, "ren2018", "demo")


@pytest.fixture
def demo(short_presets, tiny_root, tmp_path, capsys):
    """The folder, stdout and stderr of a demo of two updates."""
    if not HAS_TORCH:
        pytest.skip(REASON)
    main(["demo", "--splits", "2", "--runs", str(tmp_path / "runs"), "--data-root", str(tiny_root)])
    return tmp_path / "runs", *capsys.readouterr()


def report(source: Path, out: Path, *more: str) -> str:
    main(["report", str(source), "-o", str(out), *more])
    return out.read_text(encoding="utf-8")


def record(**changes) -> dict:
    return read_records(TABLE1)[0] | changes


def written(path: Path, content) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


# What is on the page


def test_published_results_become_a_small_page_that_needs_nothing_else(tmp_path, capsys):
    page = report(PUBLISHED, tmp_path / "report.html", "--data-root", str(tmp_path))
    assert capsys.readouterr().out == f"{tmp_path / 'report.html'}\n"
    assert len(page.encode()) < 5_000_000
    assert not re.findall(r"(?:src|href|action)=\"(?!#|data:)", page)
    assert "url(" not in page
    assert "@import" not in page
    assert [p.name for p in tmp_path.iterdir()] == ["report.html"]


def test_the_policy_allows_this_style_and_nothing_else(tmp_path):
    page = report(TABLE1, tmp_path / "report.html", "--episodes", "0")
    (content,) = re.findall("<style>(.*?)</style>", page, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
    assert f"style-src 'sha256-{digest}'" in page
    assert "script-src" not in page
    assert "default-src 'none'; img-src data:;" in page
    assert " style=" not in page


def test_settings_seeds_versions_device_times_and_commands_are_there(tmp_path):
    page = report(TABLE1, tmp_path / "report.html", "--episodes", "0")
    first, times = read_records(TABLE1)[0], [r["seconds"] for r in read_records(TABLE1)]
    words = [first["device"], first["date"][:10], f"{min(times):.1f} to {max(times):.1f} s"]
    words += ["Split seeds 0 to 9"]
    words += [f"{name} {version}" for name, version in first["versions"].items()]
    words += [
        "weight decay 5e-05",
        "halvings 6,000 8,000",
        "5-way 1-shot, 14 queries, M = 5, H = 5",
    ]
    for text in words:
        assert text in page, text
    commands = [
        re.sub("<.*?>", "", c) for c in re.findall(r'<code class="command">.*?</code>', page)
    ]
    whole = "semishot reproduce table1 --dataset omniglot"
    assert commands == [whole]


def test_every_published_record_is_in_a_section():
    results = read_results(PUBLISHED)
    tables, figures, others = tables_and_figures(results.files)
    assert others == []
    accuracies = [r for own in results.files.values() for r in own if r["kind"] == "accuracy"]
    in_sections = {identity(r) for _, group in (*tables, *figures) for r in group}
    assert in_sections == {identity(r) for r in accuracies}
    names = [name for name, _ in make_sections(results, by_file=True)]
    assert sorted(names) == sorted([*results.files, *results.choices])


def test_what_departs_from_its_preset_is_listed_apart_with_what_was_changed(tmp_path):
    changed = [
        record(split_seed=seed, accuracy=accuracy, recipe=record()["recipe"] | {"steps": 3})
        for seed, accuracy in enumerate((0.5, 0.75))
    ]
    row = record(options={"mask_power": 2})  # two settings of a method are two rows
    others = [row, record(split="val"), record(preset="mine")]
    others += [
        record(preset="semishot", dataset="mini-imagenet"),  # which has no such preset
        record(model="my_method"),
        record(query=3),
        record(train=record()["train"] | {"way": 9}),
    ]
    name = written(tmp_path / "mine.json", [*changed, *others, record()])
    tables, _, others = tables_and_figures(read_results(name).files)
    assert [len(group) for _, group in tables] == [2]
    (grid,) = others_section(others).grids
    assert len(grid.rows) == 7
    whats = {row[grid.header.index("changed")]: row for row in grid.rows}
    assert set(whats) == {"steps 3", "training way 9", "training unlabeled 0", None}
    assert [shown(cell) for cell in whats["steps 3"][:3]] == ["Supervised", "62.50 ± 12.50", "2"]


def test_several_files_and_folders_of_evaluations_make_one_page(tmp_path):
    first = written(tmp_path / "one.json", [record(preset="mine", model="first")])
    folder = tmp_path / "more"
    written(folder / "one.json", [record(preset="mine", model="second")])
    written(folder / "sub" / "two.json", [record(preset="mine", model="third")])
    trained = {"code": "", "commit": "", "device": "", "date": "", "seconds": 1.0}
    written(folder / "pretrained-classifiers" / "seed0.json", trained)  # no result
    found = read_results(first, folder, folder / "one.json", tmp_path / "one.json")
    assert list(found.files) == ["one.json", f"{folder}/one.json", "sub/two.json"]
    main(["report", str(first), str(folder), "-o", str(tmp_path / "page.html"), "--episodes", "0"])
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "3 records of" in page
    for name in ("First", "Second", "Third"):
        assert name in page


# demo and reproduce


def test_demo_leaves_a_report_with_curves_and_episodes(demo):
    runs, out, err = demo
    assert out.startswith("The five models (glyphs, 5-way)")
    assert "report" not in out
    assert f"report: {runs / 'report.html'}\n" in err
    page = (runs / "report.html").read_text(encoding="utf-8")
    for text in ("Learning curves", "training loss", "glyphs, Masked Soft k-Means: "):
        assert text in page
    assert "paper’s number" not in page  # the paper has no glyphs
    assert page.count("data:image/png;base64,") == 2 * (5 + 30 + 15)


def test_reproduce_leaves_a_report_and_damage_elsewhere_does_not_stop_it(
    short_presets, tiny_root, tmp_path, capsys
):
    common = ["--splits", "1", "--device", "cpu", "--data-root", str(tiny_root)]
    again = ["reproduce", "table1", "--dataset", "glyphs", *common, "--runs", str(tmp_path)]
    main(again)
    assert f"report: {tmp_path / 'report.html'}\n" in capsys.readouterr().err
    written(tmp_path / "glyphs" / "old" / "run" / "result.json", "{")
    main(again)
    out, err = capsys.readouterr()
    assert "Masked Soft k-Means" in out
    assert "no report: cannot read " in err


# Charts


def test_a_chart_draws_each_point_where_it_belongs():
    line = charts.Line("one", 2, [(0, 10.0), (5, 20.0)], [1.0, 2.0])
    chart = charts.Chart("title", "x", "y", [line])
    assert chart.y_range[0] <= 9 < 22 <= chart.y_range[1]  # the ends of the error bars
    low, high = chart.y_range
    y = charts.BOTTOM - (charts.BOTTOM - charts.TOP) * (10 - low) / (high - low)
    assert chart.path(line).startswith(
        f"M{float(charts.LEFT)} {round(y, 1)}L{float(charts.RIGHT)} "
    )
    assert chart.bars(line).count("M") == 4
    assert chart.marks(line).count(charts.MARKS[2]) == 2


def test_learning_curves_are_means_over_the_splits_of_a_method(demo):
    runs, *_ = demo
    (folder,) = {p.parent for p in runs.rglob("config.json") if "M5-H5" in str(p)}
    members = json.loads((folder / "config.json").read_text())["members"]
    loss = {s: [s + m for m in range(len(members))] for s in range(1, 1001)}
    log = [{"step": s, "learning_rate": 0.1, "loss": loss[s]} for s in loss]
    text = "".join(json.dumps(line) + "\n" for line in log)
    (folder / "log.jsonl").write_text(text + '{"step": 1001, "lo')  # cut short by a kill
    chart = charts.learning_curves(folder)
    assert [line.label for line in chart.lines] == [paper.MODELS[m] for m in paper.TRAINED]
    assert [len(line.points) for line in chart.lines] == [charts.MOST_POINTS] * 3
    assert chart.lines[1].points[0] == (3.0, 3 + 2.5)  # steps 1 to 5, runs 2 and 3
    (folder / "log.jsonl").write_text("")
    assert charts.learning_curves(folder) is None


# Episodes


def test_what_episodes_lack_is_said(demo, tiny_root, tmp_path):
    runs, *_ = demo
    page = report(runs, tmp_path / "a.html", "--data-root", str(tmp_path))
    assert "No episodes of glyphs: its images are not prepared here." in page
    page = report(PUBLISHED, tmp_path / "b.html", "--data-root", str(tmp_path))
    assert "No episodes of mini-imagenet: there is no trained model of it here." in page
    assert "No episodes of omniglot: its images are not prepared here." in page
    for model in runs.rglob("model.safetensors"):
        model.write_bytes(b"")
    page = report(runs, tmp_path / "d.html", "--data-root", str(tiny_root))
    assert "is damaged or of another version" in page


# Wrong input


@pytest.mark.parametrize("field", ["dataset", "preset", "model", "device", "date"])
def test_hostile_words_are_words(field, tmp_path):
    path = written(tmp_path / "r.json", [record(**{field: HOSTILE}), record(split_seed=3)])
    page = report(path, tmp_path / "report.html", "--data-root", str(tmp_path))
    assert "&lt;script&gt;document" in page
    assert page.count("<script") == 0
    assert "<img src=x" not in page


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ("{", "cannot read "),
        (record(), "it does not hold a list of records"),  # as of `pick --json`
        ([], "give the folder of `reproduce --runs` or `--publish`"),
        ([1, 2], "record 0: kind must be one of"),
        ([record(shot="one")], "record 0: shot: expected `int`, got `str`"),
        ([record(kind="ablation", variant="x", only="")], "'x' has no cell that it departs from"),
        ({"variants": [1]}, "is not the record of a choice: variants[0]: expected"),
    ],
)
def test_a_broken_result_file_is_one_line_and_exit_code_2(content, line, tmp_path, capsys):
    written(tmp_path / "omniglot" / "mine.json", content)
    if isinstance(content, dict) and "variants" in content:
        written(tmp_path / "omniglot" / "good.json", [record()])
    out = written(tmp_path / "report.html", "as it was")
    assert line in refusal(capsys, "report", tmp_path, "-o", out)
    assert out.read_text() == "as it was"


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ([], "give result files, or folders of them"),
        (["nowhere"], "no results in nowhere: there is no such file or folder"),
        (["."], "no results in ."),
        ([str(TABLE1), "--episodes", "-1"], "--episodes must be at least 0, not -1"),
        ([str(TABLE1), "--episodes", "0", "-o", "."], "cannot write .: it is a folder"),
        ([str(TABLE1), "--episodes", "0", "-o", f"{TABLE1}/r.html"], f"{TABLE1}/r.html: "),
    ],
)
def test_wrong_use_is_one_line_and_exit_code_2(arguments, line, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert line in refusal(capsys, "report", *arguments)
