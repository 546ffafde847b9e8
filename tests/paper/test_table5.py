"""Table 5: the paper's cells, episodes recomputed with loops, records that are found again."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from semishot import datasets
from semishot.commands.main import main
from semishot.data.episodes import EpisodeShape, Stream, sample_episodes
from semishot.data.splits import all_labeled
from semishot.errors import InputError
from semishot.paper import table5
from semishot.paper.authors_network import authors_network
from semishot.paper.requests import Table5Request
from semishot.report import paper_tables
from semishot.report.render import as_markdown, shown
from semishot.training import classification
from semishot.training.classification import ClassificationRequest
from semishot.training.examples import streams_of
from semishot.training.records import read_records
from semishot.training.requests import Where
from support.records import baseline

CPU = torch.device("cpu")


@pytest.fixture
def short(monkeypatch):
    """Few episodes and a narrow encoder: the plan is what is tested."""
    monkeypatch.setattr(table5, "EPISODES", 7)
    recipe = replace(classification.AUTHORS_RECIPE.with_updates(2), filters=4)
    monkeypatch.setattr(classification, "AUTHORS_RECIPE", recipe)


def test_pixel_1nn_recomputed_episode_by_episode(tiny_pool):
    images, shape = all_labeled(tiny_pool.of_split("test")), EpisodeShape(3, 2, 4, 0)
    request = ClassificationRequest(tiny_pool, classification.AUTHORS_RECIPE, CPU)
    seen = table5.features_of("pixels", request, images, 0, None)
    stream = streams_of(images, [5], shape)
    found = table5.baseline_accuracies(seen, stream, "nearest_neighbor", episodes=4)
    for e in range(4):
        drawn = sample_episodes(images, shape, Stream(5, "test"), e, 1)
        right = 0
        for q, query in enumerate(drawn.query[0]):
            pixels = tiny_pool.images[query].astype(float)
            gaps = [((pixels - tiny_pool.images[s]) ** 2).sum() for s in drawn.support[0]]
            right += int(np.argmin(gaps)) // 2 == q // 4
        assert found[e] == right / 12


def test_every_row_is_measured_once_and_found_again(short, tiny_root, tmp_path, monkeypatch):
    where = Where(tmp_path, tiny_root, "cpu")
    all_rows = Table5Request("glyphs", with_scale_bug=True, splits=2)
    found = table5.table5(all_rows, where)
    keys = [(r["model"], r["features"], *r["options"], r["split_seed"]) for r in found]
    assert len(keys) == len(set(keys)) == 3 * 4 * 2
    for record in found:
        assert record["episodes"] == 7
        assert record["accuracy"] == pytest.approx(np.mean(record["episode_accuracies"]), abs=1e-5)
        trained = record["features"] == "pretrained"
        assert record["updates"] == (2 if trained else 0)
        assert bool(record["train"]) == bool(record["recipe"]) == trained
    monkeypatch.setattr(table5, "features_of", None)  # nothing is measured again
    assert table5.table5(all_rows, where) == found
    assert table5.table5(Table5Request("glyphs", ("pixels",), splits=1), where) == found


def test_the_authors_random_network_is_one_for_all_splits(
    short, tiny_root, tiny_pool, tmp_path, monkeypatch
):
    embedded = []

    def embed(model, pool, images):
        embedded.append([w.detach().clone() for w in model.encoder.weights])
        return torch.randn(1, len(images.order), 5, generator=torch.Generator().manual_seed(0))

    monkeypatch.setattr(table5, "embed_classes", embed)
    request = Table5Request("glyphs", ("authors_random", "random"), splits=3)
    found = table5.table5(request, Where(tmp_path, tiny_root, "cpu"))
    *by_split, theirs = embedded  # in the order of the table: one for each split, one for all
    assert len(by_split) == 3
    assert not by_split[0][0].equal(by_split[1][0])
    expected = authors_network(
        tiny_pool.images.shape[1], classification.AUTHORS_RECIPE.filters
    ).weights
    assert all(w.equal(e) for w, e in zip(theirs, expected, strict=True))
    rows = {(r["model"], r["features"], r["split_seed"]) for r in found}
    assert len(rows) == len(found) == 3 * 2 * 3
    section = as_markdown(paper_tables.table5_section(found))
    assert "| 1-NN CNN rnd, the authors' |" in section
    assert "The paper's `CNN rnd` is the authors'" in section
    assert "--features random authors_random --splits 3" in section


def test_photographs_have_two_shots_and_four_tenths_labeled(
    short, tiny_pool, tmp_path, monkeypatch
):
    named = replace(tiny_pool, name="mini-imagenet")
    monkeypatch.setattr(datasets, "load", lambda *_: named)
    request = Table5Request("mini-imagenet", ("pixels", "pretrained"), splits=1)
    found = table5.table5(request, Where(tmp_path, device="cpu"))
    assert {r["shot"] for r in found} == {1, 5}
    assert {r["query"] for r in found} == {5}
    assert {r["recipe"].get("labeled_fraction") for r in found} == {None, 0.4}
    grid = paper_tables.table5_grid(found)
    assert grid.header.count("paper") == 2
    row = [shown(cell) for cell in grid.rows[0]]
    assert row[0] == "1-NN Pixel"
    assert row[4] == "26.74 ± 0.48"
    assert row[8] == "31.43 ± 0.51"


def test_the_command_of_a_table_measures_that_table():
    assert classification.AUTHORS_RECIPE.updates == paper_tables.USUAL_UPDATES
    kinds = [("pixels", 0), ("random", 0), ("pretrained", 4000)]
    whole = [baseline(features=f, updates=u, split_seed=s) for f, u in kinds for s in range(10)]
    again = "semishot reproduce table5 --dataset omniglot"
    assert paper_tables.table5_section(whole).commands == [again]
    short = [baseline(features="pretrained", updates=7, split_seed=s) for s in range(2)]
    (command,) = paper_tables.table5_section(short).commands
    assert command == f"{again} --features pretrained --splits 2 --updates 7"


def test_table5_by_command_prints_and_publishes(short, tiny_root, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("SEMISHOT_DATA", str(tiny_root))
    monkeypatch.chdir(tmp_path)
    command = ["reproduce", "table5", "--dataset", "glyphs", "--splits", "1", "--device", "cpu"]
    main([*command, "--features", "pixels", "random", "--publish", "results"])
    out = capsys.readouterr().out
    assert "LR, converged CNN rnd" in out
    published = read_records(tmp_path / "results" / "glyphs" / "table5.json")
    assert len(published) == 6
    section = as_markdown(paper_tables.table5_section(published))
    assert "## Table 5 (glyphs, 5-way)" in section
    assert "scale bug" not in section
    main([*command, "--with-scale-bug", "--json"])
    assert len(json.loads(capsys.readouterr().out)) == 12


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ({"splits": 0}, "--splits must be at least 1, not 0"),
        ({"features": ()}, "--features takes at least one of pixels, random, authors"),
        ({"features": ("pretrained",), "updates": 0}, "updates must be at least 1, not 0"),
    ],
)
def test_wrong_numbers_come_before_the_work(wanted, message, tiny_root, tmp_path):
    with pytest.raises(InputError, match=message):
        table5.table5(Table5Request("glyphs", **wanted), Where(tmp_path, tiny_root, "cpu"))


def test_a_data_set_that_is_too_small_for_the_table_is_refused(tiny_pool, monkeypatch):
    few = tuple(replace(c, count=9) for c in tiny_pool.classes)
    monkeypatch.setattr(datasets, "load", lambda *_: replace(tiny_pool, classes=few))
    with pytest.raises(InputError, match="has 9 images .* of a table are fixed: take a data set"):
        table5.table5(Table5Request("glyphs"), Where(device="cpu"))
