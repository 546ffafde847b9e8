"""Pictures: what they show is what the model does, and every wrong use is one line."""

import base64
import io
from collections import Counter
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from PIL import Image

from semishot.commands.main import main
from semishot.data.episodes import EpisodeShape, Stream, sample_episodes
from semishot.data.splits import all_labeled
from semishot.datasets import tiered_imagenet
from semishot.network.protonet import take_run
from semishot.paper.requests import EpisodeRequest
from semishot.paper.viewed_episode import ViewedEpisode, view_episode
from semishot.report import pictures
from semishot.training.config import Member, Recipe
from support.commands import refusal
from support.fleets import fleet_config, save_untrained

RECIPE = Recipe(updates=2, filters=4, init_std=0.1)
SHAPE = EpisodeShape(way=3, shot=2, query=4, unlabeled=5, distractors=2)


@pytest.fixture
def fleet(tiny_pool, tmp_path):
    members = (Member("soft_kmeans", 3), Member("masked_soft_kmeans", 5))
    config = fleet_config(tiny_pool, "ren2018", recipe=RECIPE, shape=SHAPE, members=members)
    return tmp_path / "fleet", save_untrained(tmp_path / "fleet", config), members


def test_a_viewed_episode_is_the_episode_and_the_predictions_of_the_model(
    fleet, tiny_pool, tiny_root
):
    folder, model, _ = fleet
    view = view_episode(EpisodeRequest(str(folder), None, SHAPE, 7, 11, 1), tiny_root)
    images = all_labeled(tiny_pool.of_split("test"))
    drawn = sample_episodes(images, SHAPE, Stream(7, "test"), 11, 1)
    assert np.array_equal(view.support[2, 1], tiny_pool.images[drawn.support[0, 5]])
    assert np.array_equal(view.unlabeled[4, 3], tiny_pool.images[drawn.unlabeled[0, 23]])
    assert np.array_equal(view.query[1, 3], tiny_pool.images[drawn.query[0, 7]])
    single = take_run(model, 1)
    with torch.no_grad():
        points = single.embed(torch.from_numpy(tiny_pool.images[drawn.images]))
        predicted = single.score(points, SHAPE).argmax(-1)[0].reshape(3, 4)
    assert np.array_equal(view.after, predicted.numpy())
    assert np.allclose(view.prototypes[0], view.points[0].mean(1))
    d = ((view.points[1].reshape(25, 1, -1) - view.prototypes[0]) ** 2).sum(-1)  # (U, N)
    with torch.no_grad():
        mask = single.refiner.mask_of(torch.from_numpy(d)[None].float())[0].numpy()
    shares = np.exp(-d) / np.exp(-d).sum(1, keepdims=True)
    assert np.allclose(view.weights.ravel(), (shares * mask).sum(1), atol=1e-4)
    assert "Masked Soft k-Means" in view.title


def test_pixels_are_classified_by_their_nearest_mean(tiny_pool, tiny_root):
    view = view_episode(EpisodeRequest("pixels", "glyphs", SHAPE), tiny_root)
    support, query = (part.reshape(3, -1, 784) / 255 for part in (view.support, view.query))
    for row in range(3):
        for column in range(4):
            gaps = [((query[row, column] - own.mean(0)) ** 2).sum() for own in support]
            assert view.after[row, column] == np.argmin(gaps)
    assert np.array_equal(view.before, view.after)


def test_the_plane_is_that_of_greatest_variance_at_one_scale():
    points = np.random.default_rng(0).normal(size=(60, 5)) * [1, 9, 2, 5, 3]
    (flat,) = pictures.plane([points])
    values, vectors = np.linalg.eigh(np.cov(points.T))
    expected = (points - points.mean(0)) @ vectors.T[np.argsort(values)[::-1]][:2].T  # (P, 2)
    ratios = np.ptp(flat, axis=0) / np.ptp(expected, axis=0)
    assert ratios[0] == pytest.approx(ratios[1], rel=1e-3)
    assert (flat.min(0) > [20, 30]).all()
    assert (flat.max(0) < [660, 500]).all()


@pytest.mark.parametrize(
    "shape", [SHAPE, EpisodeShape(way=7, query=1, unlabeled=1), EpisodeShape(way=2, unlabeled=0)]
)
def test_both_pictures_are_drawn_for_episodes_of_any_shape(fleet, tiny_root, tmp_path, shape):
    view = view_episode(EpisodeRequest(str(fleet[0]), shape=shape, run=1), tiny_root)
    for make in (pictures.episode_picture, pictures.refinement_picture):
        pictures.write_picture(make(view), tmp_path / "p.svg")
        drawn = ElementTree.parse(tmp_path / "p.svg").getroot()
        assert drawn.tag == "{http://www.w3.org/2000/svg}svg"
        assert "nan" not in (tmp_path / "p.svg").read_text(encoding="utf-8")


def test_the_task_marks_what_belongs_to_the_classes(tiny_root):
    asked = EpisodeRequest("pixels", "glyphs", shape=SHAPE)
    picture = pictures.task_picture(view_episode(asked, tiny_root))
    kinds = [(tile.about[:8], tile.tone) for tile in picture.tiles]
    assert kinds.count(("of class", "member")) == 3 * 5
    assert kinds.count(("a distr", "")) + kinds.count(("a distra", "")) == 2 * 5
    assert sum(about.startswith("labeled") for about, _ in kinds) == 3 * 2


def test_the_hierarchy_has_every_category_of_tiered_imagenet_once():
    listed = tiered_imagenet.class_list()
    picture = pictures.hierarchy_picture()
    shown = [text.rsplit(", ", 2) for *_, kind, text in picture.texts if kind.count(" ")]
    sizes = Counter((c.group, c.split) for c in listed)
    assert Counter((int(n), s) for _, n, s in shown) == Counter(
        (n, s) for (_, s), n in sizes.items()
    )
    assert sum(int(n) for _, n, _ in shown) == 608
    assert [s for name, _, s in shown if name in ("working dog", "sporting dog")] == ["val", "test"]


def hand_made(channels: int = 1) -> ViewedEpisode:
    generator = np.random.default_rng(0)
    support, unlabeled, query = (
        generator.integers(0, 256, (*shape, channels, 6, 5), dtype=np.uint8)
        for shape in ((2, 1), (3, 2), (2, 2))
    )
    nothing = np.zeros((1, 1, 1))
    return ViewedEpisode(
        "title", support, unlabeled, query, np.array([[0, 1], [0, 1]]), np.array([[0, 0], [0, 1]]),
        np.array([[1.0, 0.5], [0.25, 1.2], [0.0, 0.004]]), (nothing,) * 3, (nothing[0],) * 2,
    )  # fmt: skip


def test_an_episode_shows_its_images_its_weights_and_its_predictions():
    picture = pictures.episode_picture(hand_made())
    assert picture.title == "title: 2 of 4 queries right before refinement, 3 after"
    support, pile, query = picture.tiles[:2], picture.tiles[2:8], picture.tiles[8:]
    assert [tile.about for tile in support] == ["labeled, class 1", "labeled, class 2"]
    assert [tile.caption for tile in query] == ["1 ✓", "2→1 ✓", "1 ✗", "2 ✓"]
    assert [tile.tone for tile in query] == ["above", "above", "below", "above"]
    shares = sorted(tile.caption for tile in pile)
    assert shares == ["+ 100 %", "+ 100 %", "+ 25 %", "+ 50 %", "− 0 %", "− 0 %"]
    pixels = Image.open(io.BytesIO(base64.b64decode(support[0].source.partition(",")[2])))
    assert np.array_equal(np.array(pixels), 255 - hand_made().support[0, 0, 0])  # ink on paper


def test_show_by_command_prints_the_name_of_the_picture(
    fleet, tiny_root, tmp_path, monkeypatch, capsys
):
    monkeypatch.setenv("SEMISHOT_DATA", str(tiny_root))
    monkeypatch.chdir(tmp_path)
    main(["show", "episode", "--model", "pixels", "--dataset", "glyphs", "--episode", "3"])
    main(["show", "refinement", "--model", str(fleet[0]), "--run", "1", "--out", "two.svg"])
    main(["show", "task"])
    main(["show", "hierarchy"])
    names = ["episode.svg", "two.svg", "task.svg", "hierarchy.svg"]
    assert capsys.readouterr().out.split() == names
    for name in names:
        assert (tmp_path / name).read_text(encoding="utf-8").startswith("<svg ")


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
            "cannot draw to 'e.txt': pictures are SVG",
        ),
    ],
)
def test_wrong_use_is_one_line(fleet, tiny_root, monkeypatch, capsys, arguments, line):
    monkeypatch.setenv("SEMISHOT_DATA", str(tiny_root))
    assert line in refusal(capsys, "show", *(fleet[0] if a == "FLEET" else a for a in arguments))
