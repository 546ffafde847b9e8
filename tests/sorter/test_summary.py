"""The lines that `classify` prints, for one, for several and for none."""

import pytest

from semishot.sorter.summary import PileSummary, UnnamedKind


def summary(**fields) -> PileSummary:
    likely = {"expected": 3.0, "low": 1.0, "high": 9.0}
    given = {
        **dict(encoder="photos", labeled={"a": 1}, named_strangers=0, pile=8),
        **dict(accepted={"a": 8}, strangers=3, likely_strangers=likely, missed_strangers=2.0),
        **dict(
            reject=0.05,
            skipped=0,
            lost_members=0.4,
            likely_wrong=2.6,
            message="used",
            held_out=None,
            notes=[],
        ),
        "next_to_label": [],
    }
    return PileSummary(**{**given, **fields})


@pytest.mark.parametrize(
    ("found", "missed", "line"),
    [
        (0, 0.0, "none is taken for a stranger; about 0 are likely missed."),
        (1, 1.2, "1 is taken for a stranger, {lost}; about 1 is likely missed."),
        (2, 3.0, "2 are taken for strangers, {lost}; about 3 are likely missed."),
    ],
)
def test_strangers_are_counted_in_words(found, missed, line):
    about = summary(strangers=found, missed_strangers=missed).about_strangers()
    line = line.format(lost="of which about 0 likely belong to a class")
    wrong = "In all, about 3 of 8 are likely sorted wrong."
    assert (
        about
        == f"About 3 (1 to 9) of the pile are strangers, of none of the classes; {line} {wrong}"
    )
    assert summary(pile=0).about_strangers() == "Every image of the pile has a label."


def test_images_have_an_encoder_and_features_have_none():
    assert summary().lines()[0] == (
        "1 labeled image of 1 class, 8 images in the pile, seen by the encoder photos."
    )
    given = summary(encoder="features", pile=1)
    assert (
        given.lines()[0] == "1 labeled row of features of 1 class, 1 row of features in the pile."
    )


def test_kinds_without_a_class_are_shown_by_their_typical_images():
    kinds = [UnnamedKind(40 - n, [f"{n}-{i}.jpg" for i in range(5)]) for n in range(7)]
    lines = summary(kinds=kinds).about_kinds()
    assert lines[0] == "About 40 more look alike and have no class: see 0-0.jpg, 0-1.jpg, 0-2.jpg."
    assert lines[5:] == ["2 smaller groups look alike."]
    assert summary().about_kinds() == []
    assert summary(kinds=kinds).as_json()["kinds"][6]["size"] == 34
