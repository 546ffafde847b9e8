"""Run by a test: embeds a folder in children that are killed at many moments, then once to the end."""

import json
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from semishot.sorter import embedding, embedding_cache
from semishot.sorter.encoders.image_encoder import open_encoder
from semishot.sorter.encoders.networks import Features, Pixels
from semishot.sorter.listing import from_folders
from semishot.system import files
from support.killing import attempt

WATCHED = {module.__file__ for module in (embedding, embedding_cache, files)}
MOMENTS = 12


class CountedNetwork:
    """One image at a time, in the thread that is watched."""

    def __init__(self) -> None:
        self.network, self.batch, self.count = open_encoder("omniglot").network("cpu"), 2, 0

    def __call__(self, images: Pixels) -> Features:
        different = len(np.unique(images, axis=0))
        self.count += different
        return self.network(images)


def main(pile: Path, work: Path) -> None:
    embedding_cache.MOST_ROWS = 8
    network = CountedNetwork()
    encoder = replace(open_encoder("omniglot"), network=lambda device: network)
    items, here = from_folders(None, [pile]).items, partial(embedding.in_this_process, "cpu")

    def embedded(folder: Path) -> embedding.Rows:
        cache = embedding_cache.EmbeddingCache(folder, encoder.identity, encoder.features)
        return embedding.embed(items, encoder, cache, work / "rows.npy", here)

    events = attempt(lambda: embedded(work / "whole"), WATCHED)
    whole = embedded(work / "whole").features.copy()
    attempts = []
    for moment in range(1, events, events // MOMENTS):
        folder = work / str(moment)
        assert attempt(lambda folder=folder: embedded(folder), WATCHED, moment) is None
        network.count = 0
        same = np.array_equal(embedded(folder).features, whole)
        attempts.append({"same": same, "encoded": network.count})
    print(json.dumps(attempts))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
