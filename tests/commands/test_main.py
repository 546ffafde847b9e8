"""The command: results on stdout, one clear line on stderr and exit code 2 when the input is wrong."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import semishot
from semishot import datasets
from semishot.commands.main import main
from semishot.data.episodes import EpisodeShape
from semishot.paper import presets
from semishot.training.config import FleetConfig, Recipe
from support.commands import printed, refusal

TINY = presets.Preset("a test's", Recipe(updates=3, filters=3, init_std=0.1))
SMALL_TEST = ["--way", "3", "--query", "4", "--unlabeled", "2", "--episodes", "6"]


@pytest.fixture(autouse=True)
def surroundings(tiny_root, monkeypatch, tmp_path):
    """The tiny pool is the data, `tiny` a preset, and what is written lands in tmp_path."""
    monkeypatch.setenv("SEMISHOT_DATA", str(tiny_root))
    monkeypatch.setitem(presets.PRESETS, "tiny", TINY)
    monkeypatch.chdir(tmp_path)


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "semishot", *arguments]


def small_training(*more: str) -> list[str]:
    return ["train", "--preset", "tiny", "--device", "cpu", "--way", "3", *more]


def test_version_is_the_packages():
    found = subprocess.run(command("--version"), capture_output=True, text=True, check=True)
    assert found.stdout.strip() == semishot.__version__
    assert found.stderr == ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "--dataset", "glyph"], "unknown data set 'glyph'"),
        (["train", "--preset", "ren2017"], "unknown preset 'ren2017'"),
        (["train", "--model", "soft_kmean"], "did you mean 'soft_kmeans'?"),
        (["train", "--device", "abacus"], "no device 'abacus': it is auto, cpu, cuda or cuda:N"),
        (["train", "--updates", "0"], "updates must be at least 1, not 0"),
        (["train", "--way", "31"], "30 classes but an episode needs 31 + 0"),
        (
            ["train", "--way", "11", "--within-group"],
            "'group0', has 10 classes but an episode with",
        ),
        (["train", "--options", "mask_power", "3"], "mask_power must be 1"),
        (["train", "--options", "mask_power", "two"], "neither a number nor true or false"),
        (["train", "--split-seeds", "1", "2", "1"], "--split-seeds has 1 twice"),
        (
            ["train", "--model", "supervised", "--options", "mask_power", "2"],
            "supervised refines nothing and has no options",
        ),
        (["evaluate", "--model", "nowhere"], "no trained model in nowhere"),
        (["reproduce", "table1", "--dataset", "glyphs", "--splits", "0"], "--splits must be at"),
        (["reproduce", "table1"], "semishot data prepare"),
        (["reproduce", "table1", "--models", "nope"], "--models nope is not a method"),
        (["data", "verify", "omniglot"], "no image pool in"),
        (["data", "prepare", "glyphs", "--download"], "cannot be downloaded"),
        (["data", "prepare", "omniglot", "--splits", "train"], "is prepared whole; drop --splits"),
        (["train", "--options", "runs", "2"], "`runs` is not an option, it follows from the fleet"),
        (["pick", ".", "best.bin"], "must end in .safetensors, not 'best.bin'"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_input_is_one_line_and_exit_code_2(arguments, message, capsys):
    assert message in refusal(capsys, *arguments)


HUGE = str(10**23)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "--updates"], "updates must be at most 1,000,000,000, not 1"),
        (["train", "--filters"], "filters must be at most 1,000,000,"),
        (["train", "--way"], "an episode's way must be at most 1,000,000"),
        (["train", "--split-seeds"], "a seed must be at least 0 and below 2**63"),
        (["evaluate", "--model", "x", "--unlabeled"], "an episode's unlabeled must be at most"),
        (["evaluate", "--model", "x", "--episodes"], "--episodes must be at most 1,000,000"),
        (["reproduce", "table1", "--splits"], "--splits must be at most 1,000"),
        (["reproduce", "table1", "--fleet-size"], "--fleet-size must be at most 1,000,000"),
        (["show", "episode", "--episode"], "--episode must be at most"),
        (["show", "episode", "--model", "pixels", "--dataset", "glyphs", "--seed"], "a seed must"),
        (["report", ".", "--episodes"], "--episodes must be at most 20"),
        (["data", "prepare", "folder", "--source", ".", "--size"], "--size must be from"),
        (["label", ".", "--port"], "--port must be between 0 and 65535"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_number_of_absurd_size_is_refused_before_the_work(arguments, message, capsys, tiny_root):
    if arguments[0] == "label":
        shutil.copy(next(Path(__file__).parents[2].glob("docs/**/*.png")), "a.png")
    assert message in refusal(capsys, *arguments, HUGE)


def test_a_deleted_working_folder_is_said(capsys, tmp_path, monkeypatch):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert "the working folder has been deleted: change to another" in refusal(capsys, "doctor")


@pytest.mark.parametrize(
    "arguments",
    ["", "dance", "train --bogus", "train --way x", "data", "reproduce table9", "show"],
)
def test_wrong_use_is_exit_code_2_and_nothing_on_stdout(arguments, capsys):
    with pytest.raises(SystemExit) as caught:
        main(arguments.split())
    assert caught.value.code == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err


def test_data_list_says_what_is_prepared_and_how_to_get_the_rest(capsys, tiny_root):
    lines = printed(capsys, "data", "list").splitlines()
    assert [line.split(":")[0] for line in lines] == datasets.names()
    assert f"glyphs: 50 classes, 1,000 images in {tiny_root / 'glyphs'}" in lines
    assert any("not prepared: semishot data prepare omniglot" in line for line in lines)


def test_doctor_tells_versions_devices_and_data(capsys, tiny_root):
    found = json.loads(printed(capsys, "doctor", "--json"))
    assert found["semishot"] == semishot.__version__
    assert found.keys() >= {"torch", "numpy", "python", "platform", "devices", "data root"}
    assert found["data root"] == str(tiny_root)
    assert "1,000 images" in found["data: glyphs"]
    text = printed(capsys, "doctor")
    assert [line.split(": ")[0] for line in text.splitlines()][:4] == list(found)[:4]


def test_train_prints_its_folder_and_evaluate_reads_it(capsys, tmp_path):
    folder = printed(capsys, *small_training("--split-seeds", "4", "2")).strip()
    assert Path(folder).parts[:3] == ("runs", "glyphs", "tiny")
    assert (tmp_path / folder / "model.safetensors").exists()

    records = json.loads(printed(capsys, "evaluate", "--model", folder, *SMALL_TEST, "--json"))
    assert [r["split_seed"] for r in records] == [4, 2]
    for r in records:
        assert (r["model"], r["way"], r["query"], r["episodes"]) == ("masked_soft_kmeans", 3, 4, 6)

    text = printed(capsys, "evaluate", "--model", folder, *SMALL_TEST)
    assert "± 95 % over episodes" in text
    assert "standard error over 2 splits" in text


def config_of(folder: str) -> FleetConfig:
    return FleetConfig.from_json((Path(folder) / "config.json").read_text())


def test_every_word_of_a_training_arrives_in_its_config(capsys, tmp_path):
    words = {"way": 4, "shot": 2, "query": 3, "unlabeled": 6, "distractors": 1}
    flags = [part for name, value in words.items() for part in (f"--{name}", str(value))]
    more = ["--updates", "2", "--filters", "5", "--labeled-fraction", "0.3", "--split-seeds", "7"]
    more += ["--precision", "tf32"]
    arguments = ["train", "--preset", "tiny", "--out", "here", *flags, *more]
    assert printed(capsys, *arguments) == "here\n"
    config = config_of("here")
    assert config.shape == EpisodeShape(**words)
    changed = {"updates": 2, "filters": 5, "labeled_fraction": 0.3, "precision": "tf32"}
    assert config.recipe == replace(TINY.recipe, **changed)
    assert [m.split_seed for m in config.members] == [7]


def test_a_name_that_the_terminal_cannot_show_is_no_reason_to_end(tmp_path):
    held = Path(__file__).parents[2] / "results" / "omniglot"
    (tmp_path / "published" / "omniglot").mkdir(parents=True)
    shutil.copy(held / "table1-ren2018.json", tmp_path / "published" / "omniglot")
    words = command("results", "--folder", "published", "--out", "é.md")
    ascii_only = {**os.environ, "PYTHONIOENCODING": "ascii"}
    found = subprocess.run(
        words, cwd=tmp_path, env=ascii_only, capture_output=True, text=True, check=False
    )
    assert found.returncode == 0
    assert found.stderr.removeprefix("measured before records named their code and data: ") in (
        "",
        "omniglot/table1-ren2018.json\n",
    )
    assert "\\xe9.md" in found.stdout
    assert (tmp_path / "é.md").exists()
