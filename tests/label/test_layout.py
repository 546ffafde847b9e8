"""The map keeps neighbours, better than principal components do."""

import numpy as np
from sklearn.decomposition import PCA
from sklearn.neighbors import NearestNeighbors

from semishot.label.similarity import layout


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
