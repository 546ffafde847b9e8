"""What is drawn: episodes, batches and random maps, by address, bounded, and applied as written out here."""

import math
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch

from semishot.data.episodes import EpisodeShape, draws
from semishot.network.protonet import warp
from semishot.training.classification import ClassificationRequest, labeled_batches
from semishot.training.config import Classification, Member, Recipe
from semishot.training.examples import (
    ROTATION,
    SHEAR,
    SHIFT,
    STRETCH,
    episode_maps,
    sample_maps,
    training_episodes,
)
from support.fleets import CPU, fleet_config

SHAPE = EpisodeShape(way=3, shot=2, query=1, unlabeled=3, distractors=2)
RECIPE = Recipe(mirror=True, labeled_fraction=0.3, turned=0.5, with_distractors=0.5)
MEMBERS = (Member("cosine_kmeans", 5), Member("cosine_kmeans", 2))
fleet = partial(fleet_config, recipe=RECIPE, shape=SHAPE, members=MEMBERS)
E, B = 5, 7


def test_a_map_is_rotation_times_shear_times_stretch_and_a_shift():
    strength, seed = 0.8, 3
    maps = sample_maps(strength, seed, 2, (E, B))
    assert maps.shape == (E, B, 2, 3)
    numbers = draws(seed, "train: affine", 2, E, 6 * B).reshape(E, B, 6)
    for e in range(E):
        for b in range(B):
            angle, across, down, shear, dx, dy = (strength * (2 * u - 1) for u in numbers[e, b])
            c, s = math.cos(ROTATION * angle), math.sin(ROTATION * angle)
            rotation = np.array([[c, -s], [s, c]])
            sheared = np.array([[1, SHEAR * shear], [0, 1]])
            stretch = np.diag([math.exp(STRETCH * across), math.exp(STRETCH * down)])
            assert np.allclose(maps[e, b, :, :2], rotation @ sheared @ stretch, atol=1e-6)
            assert np.allclose(maps[e, b, :, 2], [SHIFT * dx, SHIFT * dy], atol=1e-6)


def literal_warp(image: np.ndarray, theta: np.ndarray) -> np.ndarray:
    """Each output pixel from its four neighbours at the place the map sends it to; zeros outside."""
    height, width = image.shape
    out = np.zeros((height, width))
    for y in range(height):
        for x in range(width):
            place = theta @ [(2 * x + 1) / width - 1, (2 * y + 1) / height - 1, 1]
            sx, sy = ((place[0] + 1) * width - 1) / 2, ((place[1] + 1) * height - 1) / 2
            for ny in (math.floor(sy), math.floor(sy) + 1):
                for nx in (math.floor(sx), math.floor(sx) + 1):
                    if 0 <= ny < height and 0 <= nx < width:
                        out[y, x] += image[ny, nx] * (1 - abs(sy - ny)) * (1 - abs(sx - nx))
    return out


def test_warp_matches_literal_loops():
    generator = np.random.default_rng(5)
    images = generator.integers(0, 256, (2, 3, 1, 9, 11), dtype=np.uint8)
    maps = sample_maps(1.0, 0, 0, (2, 3))
    moved = warp(torch.from_numpy(images), torch.from_numpy(maps))
    assert moved.dtype == torch.uint8
    assert moved.shape == images.shape
    for r in range(2):
        for b in range(3):
            expected = literal_warp(images[r, b, 0].astype(float), maps[r, b].astype(float))
            assert np.abs(moved[r, b, 0].numpy() - expected).max() <= 0.51  # rounded


def test_mirror_turns_about_half_of_the_images_around():
    maps = sample_maps(0.0, 1, 0, (200, B), mirror=True)
    turned = maps[..., 0, 0] < 0
    assert np.array_equal(np.abs(maps), np.abs(sample_maps(0.0, 1, 0, (200, B))))
    assert turned.mean() == pytest.approx(0.5, abs=0.05)
    image = torch.arange(2 * 3 * 4, dtype=torch.uint8).view(1, 1, 1, 4, 6)
    mirror = torch.tensor([[-1.0, 0, 0], [0, 1, 0]]).view(1, 1, 2, 3)
    assert torch.equal(warp(image, mirror), image.flip(-1))


def test_photographs_are_reflected_at_the_border_where_drawings_have_paper():
    drawing = torch.full((1, 1, 1, 8, 8), 200, dtype=torch.uint8)
    shifted = torch.tensor([[1.0, 0, 0.5], [0, 1, 0]]).view(1, 1, 2, 3)
    assert warp(drawing, shifted).min() == 0
    assert warp(drawing.expand(1, 1, 3, 8, 8), shifted).min() == 200


def test_a_batch_is_seen_upright_first_then_turned(tiny_pool):
    first = Classification(batch=6)
    request = ClassificationRequest(tiny_pool, RECIPE.of_classification(first), CPU, first=first)
    drawn = labeled_batches(request, [5, 2])(3, 2)
    assert drawn.images.shape == drawn.labels.shape == (2, 2, 24)
    assert drawn.maps.shape == (2, 2, 24, 2, 3)
    images, maps = drawn.images.reshape(2, 2, 4, 6), drawn.maps.numpy().reshape(2, 2, 4, 6, 2, 3)
    for k, turn in enumerate([[[1, 0], [0, 1]], [[0, -1], [1, 0]], [[-1, 0], [0, -1]]]):
        assert np.array_equal(images[:, :, k], images[:, :, 0])
        assert np.allclose(maps[:, :, k, :, :, :2], maps[:, :, 0, :, :, :2] @ np.array(turn))
    upright = maps[:, :, 0]
    assert (np.abs(upright[..., 0, 0]) >= 0.8**0.5 - 1e-6).all()
    assert (np.abs(upright[..., 2]) <= 1 - np.abs(upright[..., 0, 0])[..., None] + 1e-6).all()
    assert len(set(np.sign(upright[..., 0, 0]).ravel())) == 2  # some are mirrored


@pytest.mark.parametrize("chunk", [1, 3, 6])
def test_same_address_same_episode_whatever_the_chunking(tiny_pool, chunk):
    draw = training_episodes(fleet(tiny_pool), tiny_pool)
    together = draw(2, 6)
    for first in range(0, 6, chunk):
        part, own = draw(2 + first, chunk), slice(first, first + chunk)
        assert np.array_equal(part.images, together.images[own])
        assert torch.equal(part.maps, together.maps[own])
        assert torch.equal(part.distractors, together.distractors[own])


def test_distractors_take_part_in_their_share_of_episodes(tiny_pool):
    draw = training_episodes(fleet(tiny_pool), tiny_pool)
    present = draw(0, 400).distractors
    assert present.shape == (400, 2)
    assert 0.4 < present.mean() < 0.6
    always = fleet(tiny_pool, recipe=replace(RECIPE, with_distractors=1.0))
    assert training_episodes(always, tiny_pool)(0, 4).distractors is None


def test_half_of_the_classes_are_turned_all_images_of_a_class_alike():
    recipe = replace(RECIPE, mirror=False)
    maps = episode_maps(recipe, SHAPE, 3, 0, 200)[..., :2]  # (E, B, 2, 2)
    support, unlabeled, query = np.split(maps, np.cumsum(SHAPE.sizes)[:2], axis=1)
    parts = ((support, 3), (unlabeled, 5), (query, 3))
    by_class = np.concatenate([part.reshape(200, n, -1, 2, 2)[:, :3] for part, n in parts], 2)
    assert (by_class == by_class[:, :, :1]).all()
    distracting = unlabeled.reshape(200, 5, 3, 2, 2)
    assert (distracting == distracting[:, :, :1]).all()
    upright = (distracting[:, :, 0] == np.eye(2)).all((-2, -1)).mean()
    assert 0.55 < upright < 0.7  # half are not turned, and a quarter of the others by nothing
