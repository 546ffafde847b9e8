"""Labeled splits: 10 % of 20 is 2, by the seed and the image's place alone, the same everywhere."""

import zlib

import pytest

from semishot.data.splits import ClassImages, labeled_split, random_words
from semishot.errors import InputError
from support.pools import image_classes

WORD = 2**64


def labeled_of(split: ClassImages, c: int) -> set[int]:
    return set(split.order[split.start[c] : split.start[c] + split.labeled[c]].tolist())


def philox_block(seed: int, purpose: str, block: int) -> list[int]:
    """Philox-4x64-10 (Salmon et al. 2011) in plain integers; NumPy counts its blocks from 1."""
    x = [(block + 1) % WORD, 0, 0, 0]
    key = [seed, zlib.crc32(purpose.encode())]
    for _ in range(10):
        high0, low0 = divmod(0xD2E7470EE14C6C93 * x[0], WORD)
        high1, low1 = divmod(0xCA5A826395121157 * x[2], WORD)
        x = [high1 ^ x[1] ^ key[0], low1, high0 ^ x[3] ^ key[1], low0]
        key = [(key[0] + 0x9E3779B97F4A7C15) % WORD, (key[1] + 0xBB67AE8584CAA73B) % WORD]
    return x


def philox_words(seed: int, purpose: str, count: int) -> list[int]:
    blocks = (philox_block(seed, purpose, block) for block in range(-(-count // 4)))
    return [word for block in blocks for word in block][:count]


@pytest.mark.parametrize(("seed", "purpose"), [(0, "a"), (3, "train: labeled"), (2**40, "ü")])
def test_random_words_are_philox_from_the_paper(seed, purpose):
    assert random_words(seed, purpose, 0, 11).tolist() == philox_words(seed, purpose, 11)


@pytest.mark.parametrize(
    ("count", "percent", "labeled"),
    [(20, 10, 2), (600, 40, 240), (29, 10, 2), (100, 29, 29), (7, 100, 7), (9, 10, 0)],
)
def test_a_share_of_a_class_is_rounded_down(count, percent, labeled):
    assert labeled_split(image_classes(count), percent / 100, 0).labeled.tolist() == [labeled]


def test_split_recomputed_with_plain_integers():
    some = image_classes(20, 31, 23)
    split = labeled_split(some, 0.25, seed=6)
    words = philox_words(6, "labeled split", 74)
    for c, owner in enumerate(some):
        places = range(owner.start, owner.start + owner.count)
        by_rank = sorted(places, key=lambda place: words[place] >> 11)
        assert labeled_of(split, c) == set(by_rank[: owner.count // 4])


def test_split_does_not_depend_on_the_order_or_the_choice_of_classes():
    some = image_classes(20, 31, 23, 26)
    whole = labeled_split(some, 0.2, seed=8)
    by_name = {c.name: labeled_of(whole, i) for i, c in enumerate(some)}
    for chosen in (some[::-1], some[1:3], [some[3], some[0]]):
        part = labeled_split(chosen, 0.2, seed=8)
        assert {c.name: labeled_of(part, i) for i, c in enumerate(chosen)} == {
            c.name: by_name[c.name] for c in chosen
        }


@pytest.mark.parametrize("fraction", [0.0, -0.1, 1.01, float("nan")])
def test_a_fraction_out_of_range_is_refused(fraction):
    with pytest.raises(InputError, match=rf"labeled fraction must be in \(0, 1\], not {fraction}"):
        labeled_split(image_classes(20), fraction, 0)
