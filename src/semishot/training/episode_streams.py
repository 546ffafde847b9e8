"""Drawing episodes for the runs of a fleet: the one place where an episode's images are drawn.

Letters: R runs, E episodes, B images of an episode.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from semishot.data.episodes import EpisodeShape, Stream, sample_episodes
from semishot.data.pool import Indices
from semishot.data.splits import ClassImages


@dataclass(frozen=True)
class EpisodeStreams:
    """One stream of episodes per run, by its seed; runs of the same seed see the same episodes."""

    images: Mapping[int, ClassImages]
    """For each seed, the images that its episodes are drawn from."""
    seeds: Sequence[int]
    """The seed of each run."""
    shape: EpisodeShape
    purpose: str

    def draw(self, start: int, count: int) -> Indices:
        """(R, E, B): the images of episodes start .. start + count, in the order support, unlabeled,
        query."""
        return self._of_runs(self._drawn(start, count))

    def draw_rows(self, start: int, count: int) -> Indices:
        """The same images as rows of an array with one row per image of `ClassImages.order`."""
        drawn = self._drawn(start, count)
        return self._of_runs({seed: rows_of(self.images[seed], own) for seed, own in drawn.items()})

    def _drawn(self, start: int, count: int) -> dict[int, Indices]:
        """For each seed, (E, B)."""
        return {
            seed: sample_episodes(own, self.shape, Stream(seed, self.purpose), start, count).images
            for seed, own in self.images.items()
        }

    def _of_runs(self, drawn: Mapping[int, Indices]) -> Indices:
        return np.stack([drawn[seed] for seed in self.seeds])


def streams_of(
    images: ClassImages, seeds: Sequence[int], shape: EpisodeShape, purpose: str = "test"
) -> EpisodeStreams:
    """All runs draw from the same images, as at test."""
    return EpisodeStreams(dict.fromkeys(seeds, images), seeds, shape, purpose)


def rows_of(images: ClassImages, chosen: Indices) -> Indices:
    """The rows of these images in an array with one row per image of `images.order`."""
    row = np.empty(images.order.max() + 1, np.int64)
    row[images.order] = np.arange(len(images.order))
    return row[chosen]
