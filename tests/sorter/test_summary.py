"""The lines that `classify` prints, for one, for several and for none."""

from dataclasses import asdict

import pytest

from semishot.sorter.summary import PileSummary, UnnamedKind


def summary(**fields) -> PileSummary:
    given = dict(encoder="photos", labeled={"a": 1}, named_strangers=0, pile=8, accepted={"a": 8})
    given |= dict(strangers=3, likely_strangers={"expected": 3.0, "low": 1.0, "high": 9.0})
    given |= dict(missed_strangers=2.0, lost_members=0.4, likely_wrong=2.6, reject=0.05, skipped=0)
    given |= dict(message="used", held_out=None, notes=[], next_to_label=[])
    return PileSummary(**{**given, **fields})


@pytest.mark.parametrize(
    ("count", "aside"),
    [
        (0, "none is set aside"),
        (1, "1 is set aside, about 0 wrongly"),
        (2, "2 are set aside, about 0 wrongly"),
    ],
)
def test_strangers_are_counted_in_words(count, aside):
    assert summary(strangers=count).likely() == (
        f"The pile holds about 3 strangers (1 to 9), which belong to none of the classes; {aside}. "
        "In all, about 3 of 8 are likely sorted wrong."
    )
    assert summary(pile=0).likely() == "Every image of the pile has a label."


def test_images_have_an_encoder_and_features_have_none():
    words = "1 labeled image of 1 class, 8 images in the pile, seen by the encoder photos."
    assert summary().lines()[:2] == [words, "  a        8"]
    words = "1 labeled row of 1 class, 2 named strangers, 1 row in the pile."
    assert summary(encoder="features", pile=1, named_strangers=2).lines()[0] == words


def test_many_classes_and_kinds_are_shown_by_the_largest():
    kinds = [UnnamedKind(40 - n, [f"{n}-{i}.jpg" for i in range(5)]) for n in range(7)]
    lines = summary(kinds=kinds).remarks()
    assert lines[0] == "About 40 more look alike and have no class: see 0-0.jpg, 0-1.jpg, 0-2.jpg."
    assert lines[5:] == ["Smaller groups that look alike: 2."]
    assert summary().remarks() == []
    assert asdict(summary(kinds=kinds))["kinds"][6]["size"] == 34
    assert "  and 1,000 more" in summary(accepted={f"{n}": n for n in range(1050)}).lines()
