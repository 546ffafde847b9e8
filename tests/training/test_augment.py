"""Random affine maps: addressed like episodes, bounded, and applied as written out here."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from semishot.data.episodes import EpisodeShape, draws
from semishot.network.warping import warp
from semishot.training.augment import ROTATION, SHEAR, SHIFT, STRETCH, sample_maps
from semishot.training.config import FleetConfig, Member, Recipe
from semishot.training.fleet_table import row_of
from semishot.training.fleet_training import train

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


@pytest.mark.parametrize("chunk", [1, 2, 5])
def test_same_address_same_map_whatever_the_chunking(chunk):
    whole = sample_maps(1.0, 4, 10, (E, B))
    for first in range(0, E, chunk):
        count = min(chunk, E - first)
        part = sample_maps(1.0, 4, 10 + first, (count, B))
        assert np.array_equal(part, whole[first : first + count])


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


def test_an_augmented_training_does_not_depend_on_its_chunks(tiny_pool, tmp_path, monkeypatch):
    """So it resumes exactly; and it is another training than the plain one."""
    recipe = Recipe(updates=6, filters=3, init_std=0.1, augment=1.0)
    shape, members = EpisodeShape(way=3, unlabeled=2), (Member("soft_kmeans", 0),)
    config = FleetConfig("glyphs", tiny_pool.fingerprint, "tiny", recipe, shape, members)
    plain = replace(config, recipe=replace(recipe, augment=0.0))
    weights = []
    for name, chosen, chunk in (("a", config, 100), ("b", config, 4), ("c", plain, 100)):
        monkeypatch.setattr("semishot.training.loop.CHUNK", chunk)
        row = row_of(chosen)
        model = train(chosen, tiny_pool, tmp_path / name, torch.device("cpu"), row)
        weights.append(model.encoder.weights[0])
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


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
