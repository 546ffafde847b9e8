"""Methods that are not the paper's: trained in episodes, as rows of tables, and read again."""

import json
import os
import sys
import time
from pathlib import Path

import pytest
import torch

from semishot.commands.main import main
from semishot.errors import InputError
from semishot.paper import presets, published
from semishot.paper.reproduce import Site, measured_fleets, requested_fleets
from semishot.paper.requests import TableRequest
from semishot.report import paper_tables, render
from semishot.report.sections import tables_and_figures
from semishot.training.config import FleetConfig, Recipe
from semishot.training.fleets import load_model
from support.commands import refusal
from support.own_methods import forget, own_module

CPU = torch.device("cpu")
PRESET = presets.Preset("a test's", Recipe(updates=4, filters=3, init_std=0.1))
EVALUATED = ("--way", "3", "--query", "4", "--device", "cpu")


@pytest.fixture(autouse=True)
def tiny_preset(monkeypatch):
    monkeypatch.setitem(presets.PRESETS, "tiny", PRESET)


@pytest.fixture
def own(tmp_path):
    with own_module(tmp_path) as name:
        yield name


# Rows of a table


def table1(pool, runs, *models, splits=1, **asked):
    site = Site(pool, runs, CPU)
    request = TableRequest(None, "tiny", splits, models=models, **asked)
    return measured_fleets(requested_fleets("table1", request, site), site)


def test_any_method_is_a_row_after_those_of_the_paper(tiny_pool, tmp_path):
    records = table1(tiny_pool, tmp_path / "runs", "oslo", "supervised", "label_propagation")
    assert {r["model"] for r in records} == {"supervised", "oslo", "label_propagation"}
    assert all(r["train"]["distractors"] == r["distractors"] for r in records)
    table = published.TABLES["table1"]
    text = render.as_text(paper_tables.table_section(table, records))
    rows = [line for line in text.splitlines() if line.startswith(("Supervised", "OSLO", "Label"))]
    assert [row.split("  ")[0] for row in rows] == 2 * ["Supervised", "OSLO", "Label Propagation"]
    (command,) = paper_tables.table_section(table, records).commands
    assert command.endswith("--models supervised oslo label_propagation")
    tables, _, others = tables_and_figures({"a": records})
    assert not others
    assert [len(each) for _, each in tables] == [len(records)]
    at_test = [{**r, "trained_as": "soft_kmeans"} for r in records if r["model"] == "oslo"]
    tables, _, others = tables_and_figures({"a": at_test})
    assert len(others) == len(at_test)
    assert not tables


def test_two_settings_of_a_method_are_two_rows_and_what_was_not_asked_for_is_none(
    tiny_pool, tmp_path
):
    runs = tmp_path / "runs"
    plain = table1(tiny_pool, runs, "oslo")
    more = table1(tiny_pool, runs, "supervised", "oslo", options={"steps": "3"})
    assert {json.dumps(r["options"]) for r in more if r["model"] == "oslo"} == {'{"steps": 3}'}
    section = paper_tables.table_section(published.TABLES["table1"], plain + more)
    rows = [row[0] for row in section.grids[0].rows]
    assert rows == ["Supervised", "OSLO", "OSLO, steps 3"]
    assert [c.partition(" --models ")[2] for c in section.commands] == [
        "supervised oslo",
        "oslo --options steps 3",
    ]
    tables, _, others = tables_and_figures({"a": plain + more})
    assert (len(tables), others) == (1, [])
    with pytest.raises(InputError, match="does not take these options"):
        table1(tiny_pool, runs, "oslo", options={"mask_power": "2"})
    with pytest.raises(InputError, match="--options are of methods that refine"):
        table1(tiny_pool, runs, "supervised", options={"steps": "3"})


SHARES = '''"""What a method is told of the updates that are done."""

import torch
from torch import nn

TOLD = []


class Told(nn.Module):
    def __init__(self, runs=None):
        super().__init__()
        self.register_buffer("share_done", torch.zeros(1))

    def forward(self, unlabeled, prototypes):
        if self.training and unlabeled.requires_grad:
            TOLD.append(self.share_done.item())
        return (-torch.cdist(unlabeled, prototypes)).softmax(-1) * self.share_done
'''


def test_a_method_is_told_the_share_of_the_updates_that_are_done(tiny_pool, tmp_path):
    with own_module(tmp_path, "told_of_a_test", SHARES) as module:
        site = Site(tiny_pool, tmp_path / "runs", CPU)
        request = TableRequest(None, "tiny", 1, models=(f"{module}:Told",))
        fleets = requested_fleets("table1", request, site)
        measured_fleets(fleets, site)
        told = sys.modules[module].TOLD
        assert [share for share in told if share] == 2 * [0.25, 0.5, 0.75]  # both columns
        _, fleet = load_model(site.folder(fleets[0].config), CPU)
        assert fleet.refiner.share_done.item() == 1


def test_every_model_has_a_readable_name():
    titles = {
        "oslo steps=3 distractor_temperature=0.5": "OSLO, steps 3, distractor temperature 0.5"
    }
    titles |= {"soft_kmeans": "Soft k-Means", "oslo": "OSLO", "hard_kmeans": "Hard kmeans"}
    titles |= {"my_refiner:Refiner": "my_refiner", "my.own:HardKMeans": "HardKMeans (my.own)"}
    assert {model: published.title(model) for model in titles} == titles


# Outside the package


def test_a_method_of_the_users_is_a_row_in_a_fleet_of_its_own(own, tiny_pool, tmp_path):
    name = f"{own}:Halved"
    records = table1(tiny_pool, tmp_path / "runs", "masked_soft_kmeans", name, f"{own}:Refiner")
    assert {r["model"] for r in records} == {"masked_soft_kmeans", name, f"{own}:Refiner"}
    begun = [
        {m.model for m in FleetConfig.from_json(path.read_text()).members}
        for path in (tmp_path / "runs").rglob("config.json")
    ]
    assert all(len(models) == 1 for models in begun)
    text = render.as_text(paper_tables.table_section(published.TABLES["table1"], records))
    assert f"Halved ({own})" in text
    forget(own)  # the paper's rows are found again without that code
    assert len(table1(tiny_pool, tmp_path / "runs", "masked_soft_kmeans")) == 4
    assert not Path("imported").exists()


def test_numbers_of_a_method_that_was_saved_later_are_told_to_be_old(own, tiny_root, capsys):
    size = ["--preset", "tiny", "--data-root", str(tiny_root), "--device", "cpu"]
    train = ["train", "--model", f"{own}:Halved", "--out", "fleet", *size]
    row = ["reproduce", "table1", "--models", f"{own}:Halved", "--dataset", "glyphs", *size]
    commands = (train, [*row, "--splits", "1"])
    for command in (*commands, *commands):
        main(command)
    assert "saved later" not in capsys.readouterr().err
    later = time.time() + 5
    os.utime(f"{own}.py", (later, later))
    for command in commands:
        main(command)
        said = capsys.readouterr().err
        assert f"{own}:Halved was trained on 2" in said
        assert f"and {own}.py was saved later: if the method has changed, delete" in said


@pytest.fixture
def fleet_of_own(own, tiny_root, tmp_path, capsys):
    """A fleet of a method outside the package, trained by the command; what was imported is forgotten."""
    out = tmp_path / "fleet"
    command = ["train", "--model", f"{own}:Halved", "--preset", "tiny", "--split-seeds", "0", "1"]
    main([*command, "--out", str(out), "--data-root", str(tiny_root), "--device", "cpu"])
    forget(own)
    capsys.readouterr()
    return out


def test_a_fleet_that_names_a_module_imports_nothing_by_itself(
    fleet_of_own, own, tiny_root, capsys
):
    data = ("--data-root", str(tiny_root))
    message = f"'{own}:Halved' is not part of semishot.*allow it by `--allow {own}:Halved`"
    commands = [
        ["evaluate", "--model", str(fleet_of_own), *EVALUATED, *data],
        ["pick", str(fleet_of_own), "a.safetensors", "--model", "soft_kmeans", *EVALUATED, *data],
        ["show", "episode", "--model", str(fleet_of_own), *data],
        ["reproduce", "figure-masks", "--model", str(fleet_of_own), *data],
    ]
    for command in commands:
        assert f"allow it by `--allow {own}:Halved` (evaluate, pick, show)" in refusal(
            capsys, *command
        )
    with pytest.raises(InputError, match=message):
        load_model(fleet_of_own, CPU)
    assert own not in sys.modules
    assert not Path("imported").exists()


def test_allowed_it_is_evaluated_and_picked(fleet_of_own, own, tiny_root, capsys):
    where, name = (*EVALUATED, "--data-root", str(tiny_root)), f"{own}:Halved"
    main(["evaluate", "--model", str(fleet_of_own), "--allow", name, "--json", *where])
    records = json.loads(capsys.readouterr().out)
    assert {(r["model"], "trained_as" in r) for r in records} == {(name, False)}
    forget(own)
    main(["pick", str(fleet_of_own), "best.safetensors", "--model", name, "--json", *where])
    assert json.loads(capsys.readouterr().out)["model"] == name
    forget(own)
    best = ["evaluate", "--model", "best.safetensors", "--refiner", "oslo"]
    main([*best, "--allow", name, "--json", *where])
    (record,) = json.loads(capsys.readouterr().out)
    assert (record["model"], record["trained_as"]) == ("oslo", name)


WRONG = """from torch import nn
from semishot.prototypes import class_log_probs

class Wrong(nn.Module):
    def __init__(self, runs=None):
        super().__init__()

    def forward(self, unlabeled, prototypes):
        weights = class_log_probs(unlabeled, prototypes).exp()
        return {}
"""


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        ("weights.mT", "returned weights (1, 5, 50), not (1, 50, 5)"),
        (
            "weights @ weights",
            "fails on a random episode at weights_wrong.py, line 10 (RuntimeError:",
        ),
        (
            "weights.clamp_max(1) + (0 * weights.detach() - 0 * weights).sqrt()",
            "fails on a random episode (ArithmeticError: its gradient is NaN",
        ),
    ],
)
def test_a_method_that_does_not_work_is_one_line_before_anything_is_trained(
    returned, message, tiny_root, tmp_path, capsys
):
    size = ["--preset", "tiny", "--data-root", str(tiny_root), "--device", "cpu"]
    with own_module(tmp_path, "weights_wrong", WRONG.format(returned)):
        name = "weights_wrong:Wrong"
        train = ["train", "--model", name, "--distractors", "5", "--out", "fleet", *size]
        assert f"{name} {message}" in refusal(capsys, *train)
        assert not Path("fleet").exists()


def test_a_report_of_its_runs_imports_nothing(own, tiny_root, tmp_path, capsys):
    data = ("--data-root", str(tiny_root))
    row = ["reproduce", "table1", "--dataset", "glyphs", "--preset", "tiny", "--splits", "1"]
    main([*row, "--models", f"{own}:Halved", *data, "--device", "cpu"])
    assert f"Halved ({own})" in capsys.readouterr().out
    forget(own)
    main(["report", "runs", "-o", "report.html", *data])
    page = Path("report.html").read_text(encoding="utf-8")
    assert f"Halved ({own})" in page
    assert f"<span>--models</span> <span>{own}:Halved</span>" in page
    assert "No episodes of glyphs" in page
    assert own not in sys.modules
