"""Near copies are found; the map keeps neighbours, better than principal components do."""

import io
from random import Random

import numpy as np
import pytest
from PIL import Image
from sklearn.decomposition import PCA
from sklearn.neighbors import NearestNeighbors

from semishot.data.thumbnails import fingerprint
from semishot.label.similarity import layout, near_copies
from semishot.sorter.sample import objects, picture


def blobs(count, groups=12, features=40):
    rng = np.random.default_rng(0)
    group = rng.integers(0, groups, count)
    middles = rng.standard_normal((groups, features)) * 2
    return (middles[group] + rng.standard_normal((count, features))).astype(np.float32), group


def same(places, group):
    near = NearestNeighbors(n_neighbors=5).fit(places).kneighbors()[1]
    return (group[near] == group[:, None]).mean()


def test_neighbours_on_the_map_are_neighbours_in_the_pile():
    rows, group = blobs(500)
    places = layout(rows)
    assert places.shape == (500, 2)
    assert places.min() >= 0
    assert places.max() == 1
    assert same(places, group) > 0.9
    assert same(places, group) > same(PCA(2).fit_transform(rows), group) + 0.1
    assert (layout(rows) == places).all()


def test_rows_beyond_those_laid_out_go_to_what_they_resemble(monkeypatch):
    monkeypatch.setattr("semishot.label.similarity.MOST", 200)
    rows, group = blobs(600)
    assert same(layout(rows), group) > 0.8


def test_few_rows_have_places():
    for count in range(5):
        assert np.isfinite(layout(np.eye(5, 3, dtype=np.float32)[:count])).all()


@pytest.mark.parametrize("share", [0.8, 0.6, 0.4])
def test_a_photograph_that_was_resized_is_a_near_copy(share):
    rng, shapes = Random(0), list(objects()[0].values())
    pictures = [Image.open(io.BytesIO(picture(shapes[n % 3], rng))) for n in range(12)]
    small = pictures[3].resize([round(side * share) for side in pictures[3].size])
    file = io.BytesIO()
    small.save(file, "jpeg", quality=80)
    looks = [np.frombuffer(fingerprint(p), np.uint8) for p in (*pictures, Image.open(file))]
    assert near_copies(np.stack(looks)).tolist() == [*range(12), 3]
    shots = [(0, 5), (5, 3)]  # of one burst
    assert near_copies(np.stack(looks), shots).tolist() == [0, 1, 2, 0, 4, 0, *range(6, 12), 0]


def test_near_copies_are_found_in_a_large_pile_too():
    rng = np.random.default_rng(0)
    rows = rng.integers(0, 256, (3500, 576))
    rows[3100] = (rows[7] * 0.8).round() + 3  # darker
    rows[3200] = rows[3100]
    rows[20:30] = 255  # blank ones are no copies
    groups = near_copies(rows)
    assert groups[[7, 3100, 3200]].tolist() == [7, 7, 7]
    assert (groups != np.arange(len(rows))).sum() == 2
