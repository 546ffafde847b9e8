"""Figures: what is drawn is what the records say."""

import sys

import pytest
from PIL import Image

from semishot.errors import InputError
from semishot.paper import published
from semishot.report import mask_tables, plots, svg
from support.records import masks, record

SEEDS = (0, 1, 2)
EMPTY = {"distractors": [0] * 4, "others": [0] * 4}


def accuracy(shot: int, model: str, h: int, m: int, seed: int) -> float:
    return 0.3 + 0.02 * shot + 0.01 * len(model) - 0.004 * h + 0.002 * m + 0.0007 * seed**2


def records(shots: tuple[int, ...]) -> list[dict]:
    return [
        record(
            dataset="mini-imagenet",
            model=model,
            shot=shot,
            distractors=h,
            unlabeled=m,
            split_seed=seed,
            accuracy=accuracy(shot, model, h, m, seed),
        )
        for shot in shots
        for model in ("soft_kmeans", "masked_soft_kmeans")
        for h in (0, 5)
        for m in (0, 5, 25)
        for seed in SEEDS
    ]


def test_panels_have_the_means_and_standard_errors_of_their_shot_and_column():
    figure = plots.unlabeled_figure(records((1, 5)))
    panels = figure.axes
    assert len(panels) == 4
    for panel, (shot, h) in zip(panels, [(1, 0), (1, 5), (5, 0), (5, 5)], strict=True):
        assert f"{shot}-shot" in panel.get_title()
        assert ("w/" in panel.get_title()) == (h > 0)
        drawn = {c.get_label(): c for c in panel.containers}
        assert set(drawn) == {"Soft k-Means", "Masked Soft k-Means"}
        for model in ("soft_kmeans", "masked_soft_kmeans"):
            line, _, (bars,) = drawn[published.MODELS[model]]
            assert list(line.get_xdata()) == [0, 5, 25]
            for m, y, bar in zip((0, 5, 25), line.get_ydata(), bars.get_segments(), strict=True):
                values = [100 * accuracy(shot, model, h, m, seed) for seed in SEEDS]
                mean = sum(values) / 3
                error = (sum((v - mean) ** 2 for v in values) / 2) ** 0.5 / 3**0.5
                assert y == pytest.approx(mean)
                assert bar[1, 1] - bar[0, 1] == pytest.approx(2 * error)


def test_the_picture_is_written_whole(tmp_path):
    path = tmp_path / "figure.png"
    plots.accuracy_over_unlabeled(records((1,)), path)
    with Image.open(path) as image:
        assert image.size == (1080, 456)
    assert [p.name for p in tmp_path.iterdir()] == ["figure.png"]


def test_both_renderers_of_the_mask_values_draw_the_shares_of_each_kind(tmp_path):
    """Bins of 6, 0, 0, 2 distractors and 1, 0, 0, 3 others, in two runs."""
    found = [masks(split_seed=seed) for seed in (0, 1)]
    chart = mask_tables.mask_chart([*found, masks(model="soft_kmeans", mask_histogram=EMPTY)])
    others, distractors = chart.lines
    assert others.heights == [25, 0, 0, 75]
    assert distractors.heights == [75, 0, 0, 25]
    assert others.edges == [0, 0.25, 0.5, 0.75, 1]
    corners = [(0, 25), (0.25, 25), (0.25, 0), (0.5, 0), (0.5, 0), (0.75, 0), (0.75, 75), (1, 75)]
    assert others.points == corners
    drawing = svg.Drawing(chart)
    ends = [(drawing.across(x), drawing.down(y)) for x, y in corners]
    assert drawing.path(others) == "M" + "L".join(f"{x} {y}" for x, y in ends)
    plots.draw_masks(found, tmp_path / "masks.svg")
    text = (tmp_path / "masks.svg").read_text(encoding="utf-8")
    assert "<svg" in text


def test_the_kind_of_a_record_is_no_part_of_its_fingerprint():
    """Pictures of files of version 0.1, which have none, stay up to date."""
    old = {k: v for k, v in record().items() if k != "kind"}
    assert plots.fingerprint([old]) == plots.fingerprint([record(episode_accuracies=[0.5])])
    assert plots.fingerprint([old]) != plots.fingerprint([record(accuracy=0.1)])


def test_without_matplotlib_one_line_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(InputError, match=r"pip install 'semishot\[plots\]'"):
        plots.canvas(1, 1)
