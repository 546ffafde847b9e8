"""Pictures: what they show is what the model does, and every wrong use is one line."""

import sys
from dataclasses import replace

import numpy as np
import pytest
import torch

from semishot.commands.main import main
from semishot.data.episodes import EpisodeShape, Stream, sample_episodes
from semishot.data.splits import all_labeled
from semishot.errors import InputError
from semishot.network.protonet import take_run
from semishot.paper import scenes
from semishot.paper.requests import SceneRequest
from semishot.report import pictures
from semishot.training.config import Member, Recipe
from support.commands import refusal
from support.fleets import fleet_config, save_untrained

RECIPE = Recipe(updates=2, filters=4, init_std=0.1)
SHAPE = EpisodeShape(way=3, shot=2, query=4, unlabeled=5, distractors=2)
PNG = b"\x89PNG"


@pytest.fixture
def fleet(tiny_pool, tmp_path):
    members = (Member("soft_kmeans", 3), Member("masked_soft_kmeans", 5))
    config = fleet_config(tiny_pool, "ren2018", recipe=RECIPE, shape=SHAPE, members=members)
    return tmp_path / "fleet", save_untrained(tmp_path / "fleet", config), members


def test_a_scene_is_the_episode_and_the_predictions_of_the_model(fleet, tiny_pool, tiny_root):
    folder, model, _ = fleet
    scene = scenes.scene_of(SceneRequest(str(folder), None, SHAPE, 7, 11, 1), tiny_root)
    images = all_labeled(tiny_pool.of_split("test"))
    drawn = sample_episodes(images, SHAPE, Stream(7, "test"), 11, 1)
    assert np.array_equal(scene.support[2, 1], tiny_pool.images[drawn.support[0, 5]])
    assert np.array_equal(scene.unlabeled[4, 3], tiny_pool.images[drawn.unlabeled[0, 23]])
    assert np.array_equal(scene.query[1, 3], tiny_pool.images[drawn.query[0, 7]])
    single = take_run(model, 1)
    with torch.no_grad():
        points = single.embed(torch.from_numpy(tiny_pool.images[drawn.images]))
        predicted = single.score(points, SHAPE).argmax(-1)[0].reshape(3, 4)
    assert np.array_equal(scene.after, predicted.numpy())
    assert np.allclose(scene.prototypes[0], scene.points[0].mean(1))
    d = ((scene.points[1].reshape(25, 1, -1) - scene.prototypes[0]) ** 2).sum(-1)  # (U, N)
    with torch.no_grad():
        mask = single.refiner.mask_of(torch.from_numpy(d)[None].float())[0].numpy()
    shares = np.exp(-d) / np.exp(-d).sum(1, keepdims=True)
    assert np.allclose(scene.weights.ravel(), (shares * mask).sum(1), atol=1e-4)
    assert "Masked Soft k-Means" in scene.title


def test_pixels_are_classified_by_their_nearest_mean(tiny_pool, tiny_root):
    scene = scenes.scene_of(SceneRequest("pixels", "glyphs", SHAPE), tiny_root)
    support, query = (part.reshape(3, -1, 784) / 255 for part in (scene.support, scene.query))
    for row in range(3):
        for column in range(4):
            gaps = [((query[row, column] - own.mean(0)) ** 2).sum() for own in support]
            assert scene.after[row, column] == np.argmin(gaps)
    assert np.array_equal(scene.before, scene.after)


def test_the_two_directions_are_those_of_greatest_variance():
    points = np.random.default_rng(0).normal(size=(60, 5)) * [1, 9, 2, 5, 3]
    center, directions = pictures.principal_axes(points)
    values, vectors = np.linalg.eigh(np.cov(points.T))
    assert np.allclose(center, points.mean(0))
    for direction, expected in zip(directions, vectors.T[np.argsort(values)[::-1]], strict=False):
        assert np.isclose(abs(direction @ expected), 1)


@pytest.mark.parametrize(
    "shape",
    [SHAPE, EpisodeShape(way=7, query=1, unlabeled=1), EpisodeShape(way=2, unlabeled=0)],
)
def test_both_pictures_are_drawn_for_episodes_of_any_shape(fleet, tiny_root, tmp_path, shape):
    scene = scenes.scene_of(SceneRequest(str(fleet[0]), shape=shape, run=1), tiny_root)
    for name, draw in (("e.png", pictures.draw_episode), ("r.png", pictures.draw_refinement)):
        draw(scene, tmp_path / name)
        assert (tmp_path / name).read_bytes().startswith(PNG)


def test_color_images_are_shown_in_color(tiny_root, tmp_path):
    scene = scenes.scene_of(SceneRequest("pixels", "glyphs", SHAPE), tiny_root)
    parts = {k: getattr(scene, k).repeat(3, 2) for k in ("support", "unlabeled", "query")}
    pictures.draw_episode(replace(scene, **parts), tmp_path / "color.svg")
    assert "<svg" in (tmp_path / "color.svg").read_text(encoding="utf-8")


def test_show_by_command_prints_the_name_of_the_picture(
    fleet, tiny_root, tmp_path, monkeypatch, capsys
):
    monkeypatch.setenv("SEMISHOT_DATA", str(tiny_root))
    monkeypatch.chdir(tmp_path)
    main(["show", "episode", "--model", "pixels", "--dataset", "glyphs", "--episode", "3"])
    main(["show", "refinement", "--model", str(fleet[0]), "--run", "1", "--out", "two.pdf"])
    assert capsys.readouterr().out == "episode.png\ntwo.pdf\n"
    assert (tmp_path / "episode.png").read_bytes().startswith(PNG)
    assert (tmp_path / "two.pdf").read_bytes().startswith(b"%PDF")


def test_without_matplotlib_the_message_says_what_to_install(tiny_root, tmp_path, monkeypatch):
    scene = scenes.scene_of(SceneRequest("pixels", "glyphs", SHAPE), tiny_root)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(InputError, match=r"needs matplotlib: pip install 'semishot\[plots\]'"):
        pictures.draw_episode(scene, tmp_path / "e.png")


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["episode", "--model", "pixels"], "--model pixels needs --dataset"),
        (["episode", "--model", "FLEET", "--dataset", "glyphs"], "brings its own data set; drop"),
        (["refinement", "--model", "FLEET", "--run", "2"], "has runs 0 to 1, not 2"),
        (
            ["refinement", "--model", "FLEET", "--episode", "-1"],
            "--episode must be at least 0, not -1",
        ),
        (
            ["refinement", "--model", "FLEET", "--out", "e.txt"],
            "cannot draw to 'e.txt': the name must",
        ),
    ],
)
def test_wrong_use_is_one_line(fleet, tiny_root, monkeypatch, capsys, arguments, line):
    monkeypatch.setenv("SEMISHOT_DATA", str(tiny_root))
    assert line in refusal(capsys, "show", *(fleet[0] if a == "FLEET" else a for a in arguments))
