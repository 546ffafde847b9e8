"""Mask values: each score against its equation, each measure against plain counting."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from semishot import refine
from semishot.commands.main import main
from semishot.data.episodes import EpisodeShape
from semishot.errors import InputError
from semishot.paper import masks, presets
from semishot.paper import published as paper
from semishot.paper.reproduce import Site
from semishot.paper.requests import MasksRequest
from semishot.report import mask_values
from semishot.report.render import as_markdown
from semishot.training.config import Member, Recipe
from semishot.training.evaluation import open_fleet
from semishot.training.requests import Where
from support.fleets import CPU, add_noise, fleet_config, save_untrained
from support.records import masks as mask_record

SHAPE = EpisodeShape(way=3, shot=2, query=4, unlabeled=2, distractors=4)
RECIPE = Recipe(updates=2, filters=4, init_std=0.1)


@pytest.fixture
def fleet(tiny_pool, tmp_path):
    """A run folder with all three methods on two splits, untrained but for noise."""
    members = tuple(Member(model, seed) for model in paper.TRAINED for seed in range(2))
    shape = EpisodeShape(distractors=5)
    config = fleet_config(tiny_pool, "ren2018", recipe=RECIPE, shape=shape, members=members)
    save_untrained(tmp_path / "fleet", config, noise=0.3)
    return tmp_path / "fleet"


def test_the_scores_are_those_of_eqs_6_and_9():
    generator = torch.Generator().manual_seed(0)
    unlabeled, prototypes = (
        torch.randn(1, 2, size, 4, generator=generator, dtype=torch.float64) for size in (7, 3)
    )
    masked, cluster = (
        refine.build(name, runs=1).double() for name in ("masked_soft_kmeans", "distractor_cluster")
    )
    add_noise(masked)
    cluster.log_radius.data.fill_(0.7)
    with torch.no_grad():
        of_mask = masks.distractor_scores(masked, unlabeled, prototypes)
        of_cluster = masks.distractor_scores(cluster, unlabeled, prototypes)
        assert set(masks.distractor_scores(None, unlabeled, prototypes)) == {"distance"}
    assert set(of_mask) == {"distance", "mask"}
    assert set(of_cluster) == {"distance", "cluster"}
    radius = np.exp(0.7)
    for e in range(2):
        d = np.array(
            [[sum((a - b) ** 2) for b in prototypes[0, e].numpy()] for a in unlabeled[0, e].numpy()]
        )  # (U, N)
        assert np.allclose(of_mask["distance"][0, e], d.min(1))
        scaled = d / d.mean(0)
        with torch.no_grad():
            threshold, slope = masked.threshold_and_slope(
                refine.masked_soft_kmeans.statistics(torch.from_numpy(scaled)[None, None])
            )
        mask = 1 / (1 + np.exp(slope[0, 0].numpy() * (scaled - threshold[0, 0].numpy())))
        assert np.allclose(of_mask["mask"][0, e], -mask.max(1))
        for j in range(7):
            norm = (unlabeled[0, e, j] ** 2).sum().item()
            terms = [*np.exp(-d[j]), np.exp(-norm / radius**2) / radius]
            assert np.isclose(of_cluster["cluster"][0, e, j], terms[-1] / sum(terms))


def test_auroc_counts_pairs_and_average_precision_averages_precision_at_each_distractor():
    shape = EpisodeShape(way=2, unlabeled=3, distractors=3)
    score = np.random.default_rng(1).normal(size=(4, 15)).round(1)  # with ties
    score[:, 6:] += 0.5
    found = masks.separation({"distance": score, "mask": -1 / (1 + np.exp(score))}, shape)
    told = found["tells_distractors"]["distance"]
    distractors, others = score[:, 6:].ravel(), score[:, :6].ravel()

    def share(above, below):
        pairs = [(a > b) + 0.5 * (a == b) for a in above for b in below]
        return sum(pairs) / len(pairs)

    assert np.isclose(told["auroc"], share(distractors, others))
    within = np.mean([share(row[6:], row[:6]) for row in score])
    assert np.isclose(told["auroc_within_episode"], within)
    precision, recall, area = [], 0.0, 0.0
    for threshold in sorted(set(score.ravel()), reverse=True):
        hits, false = (distractors >= threshold).sum(), (others >= threshold).sum()
        precision.append(hits / (hits + false))
        area += (hits / len(distractors) - recall) * precision[-1]
        recall = hits / len(distractors)
    assert np.isclose(told["average_precision"], area)
    mask = 1 / (1 + np.exp(score))
    for name, values in (("distractors", mask[:, 6:]), ("others", mask[:, :6])):
        counts = found["mask_histogram"][name]
        assert len(counts) == masks.BINS
        for bin_, count in enumerate(counts):
            assert count == ((values * masks.BINS).astype(int) == bin_).sum()


def test_bimodality_of_two_points_a_uniform_and_a_normal():
    assert np.isclose(masks.bimodality(np.array([0.0, 1.0] * 50)), 1)
    assert np.isclose(masks.bimodality(np.linspace(0, 1, 10_001)), 5 / 9, atol=1e-3)
    normal = np.random.default_rng(0).normal(size=200_000)
    assert np.isclose(masks.bimodality(normal), 1 / 3, atol=0.01)


def test_every_run_is_measured_on_its_own_episodes(fleet, tiny_root):
    found = masks.mask_records([fleet], SHAPE, tiny_root, CPU, episodes=5)
    assert [(r["model"], r["split_seed"]) for r in found] == [
        (model, seed) for model in paper.TRAINED for seed in range(2)
    ]
    for record in found:
        own = {"masked_soft_kmeans": {"mask"}, "distractor_cluster": {"cluster"}}
        assert set(record["tells_distractors"]) == {"distance"} | own.get(record["model"], set())
        assert ("mask_histogram" in record) == (record["model"] == "masked_soft_kmeans")
        assert record["episodes"] == len(record["episode_accuracies"]) == 5
        for measures in record["tells_distractors"].values():
            assert all(0 <= value <= 1 for value in measures.values())
    histogram = found[-1]["mask_histogram"]
    assert sum(histogram["distractors"]) == 5 * 4 * 2
    assert sum(histogram["others"]) == 5 * 3 * 2
    rows = mask_values.masks_grid(found).rows
    assert [tuple(row[1:3]) for row in rows] == [
        ("Masked Soft k-Means", "mask"),
        ("Soft k-Means + Cluster", "distractor cluster's probability"),
        *((paper.title(model), "distance to the nearest prototype") for model in paper.TRAINED),
    ]
    pair = [r["tells_distractors"]["mask"]["auroc"] for r in found if "mask_histogram" in r]
    assert np.isclose(rows[0][4].value, sum(pair) / 2)
    assert np.isclose(rows[0][4].error, abs(pair[0] - pair[1]) / 2)  # ddof = 1


def test_runs_of_other_settings_are_no_further_splits():
    kinds = [{}, {"updates": 7}, {"updates": 7, "recipe": {"filters": 4}}]
    found = [mask_record(**kind, split_seed=seed) for kind in kinds for seed in (0, 1)]
    (first, *_), (second, *_), (third, *_) = rows = mask_values.masks_grid(found).rows
    assert [row[3] for row in rows] == [2, 2, 2]
    assert first == "ren2018, 20,000 updates"
    assert second.startswith("ren2018, 7 updates")
    assert "filters 4" in third
    assert [row[0] for row in mask_values.masks_grid(found[:2]).rows] == ["ren2018"]
    section = mask_values.masks_section(found[:2])
    assert section.commands[0].endswith("--dataset omniglot --splits 2")
    assert mask_values.masks_section(found[2:4]).commands[0].endswith("--splits 2 --updates 7")
    assert section.finding.startswith("Over 2 runs of ren2018, ")
    assert section.charts[0].title == "Mask values, 2 runs of ren2018"
    both = mask_values.masks_section(found[:3]).charts[0].title
    assert "2 runs of ren2018, 20,000 updates and 1 run of ren2018, 7 updates" in both


def test_figure_masks_by_command_draws_prints_and_publishes(
    fleet, tiny_root, tmp_path, monkeypatch, capsys
):
    monkeypatch.setenv("SEMISHOT_DATA", str(tiny_root))
    monkeypatch.chdir(tmp_path)
    small = ["--way", "3", "--query", "4", "--distractors", "4", "--device", "cpu"]
    main(["reproduce", "figure-masks", "--model", str(fleet), *small, "--publish", "results"])
    out = capsys.readouterr().out
    assert "distractor cluster's probability" in out
    assert "Sarle's bimodality coefficient" in out
    assert (tmp_path / "figure-masks.svg").read_text(encoding="utf-8").startswith("<svg ")
    text = (tmp_path / "results" / "glyphs" / "figure-masks.json").read_text(encoding="utf-8")
    published = json.loads(text)
    assert len(published) == 6
    assert {r["kind"] for r in published} == {"masks"}
    section = as_markdown(mask_values.masks_section(published))
    assert "| ren2018 | Masked Soft k-Means | mask | 2 |" in section


def test_figure_masks_trains_the_fleets_it_lacks_and_finds_them_again(
    tiny_pool, tiny_root, tmp_path, monkeypatch
):
    preset = replace(presets.PRESETS["ren2018"], recipe=RECIPE)
    monkeypatch.setitem(presets.PRESETS, "ren2018", preset)
    request = MasksRequest(dataset="glyphs", splits=2, shape=SHAPE)
    site = Site(tiny_pool, tmp_path, CPU)
    (folder,) = masks.fleets_with_distractors(request, site)
    config, _, _ = open_fleet(folder, tiny_root, CPU)
    assert {m.model for m in config.members} == set(paper.TRAINED)
    assert config.shape.distractors == 5
    written = (folder / "model.safetensors").stat().st_mtime_ns
    assert masks.fleets_with_distractors(request, site) == [folder]
    assert (folder / "model.safetensors").stat().st_mtime_ns == written
    found = masks.figure_masks(request, Where(tmp_path, tiny_root, "cpu"))
    assert len(found) == 6


def test_masks_need_distractors_and_a_masked_run(fleet, tiny_pool, tiny_root, tmp_path):
    none = replace(SHAPE, distractors=0)
    with pytest.raises(
        InputError, match="--distractors and --unlabeled must be at least 1, not 0 and 2"
    ):
        masks.mask_records([fleet], none, tiny_root, CPU)
    members = (Member("soft_kmeans", 0),)
    config = fleet_config(tiny_pool, "ren2018", recipe=RECIPE, shape=SHAPE, members=members)
    save_untrained(tmp_path / "soft.safetensors", config)
    with pytest.raises(InputError, match="no masked_soft_kmeans run in .*soft.safetensors"):
        masks.mask_records([tmp_path / "soft.safetensors"], SHAPE, tiny_root, CPU, episodes=2)
