"""Episodes by address, for a loop of one's own: `semishot.data.episodes` and `splits` under a public path."""

from semishot.data.episodes import Episodes, EpisodeShape, Stream, sample_episodes
from semishot.data.splits import ClassImages, all_labeled, labeled_split

__all__ = [
    "ClassImages",
    "EpisodeShape",
    "Episodes",
    "Stream",
    "all_labeled",
    "labeled_split",
    "sample_episodes",
]
