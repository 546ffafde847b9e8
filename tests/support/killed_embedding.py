"""Run by a test: embeds a folder in children that are killed at many moments, then once to the end."""

import json
import sys
from functools import partial
from pathlib import Path

import numpy as np
import torch

from semishot.sorter import embedding, embedding_cache
from semishot.sorter.encoders.image_encoder import open_encoder
from semishot.sorter.listing import from_folders
from semishot.system import files
from support.killing import attempt

WATCHED = {module.__file__ for module in (embedding, embedding_cache, files)}
MOMENTS = 12


def main(pile: Path, work: Path) -> None:
    torch.set_num_threads(1)
    embedding_cache.MOST_ROWS = 8
    encoder, items = open_encoder("omniglot"), from_folders(None, [pile]).items
    here = partial(embedding.in_this_process, torch.device("cpu"))
    encoded = []
    encoder.module.register_forward_hook(
        lambda module, given, found: encoded.append(len(found.unique(dim=0)))
    )

    def embedded(folder: Path) -> embedding.Rows:
        cache = embedding_cache.EmbeddingCache(folder, encoder.identity, encoder.features)
        return embedding.embed(items, encoder, cache, work / "rows.npy", here)

    events = attempt(lambda: embedded(work / "whole"), WATCHED)
    whole = embedded(work / "whole").features.copy()
    found = []
    for moment in range(1, events, events // MOMENTS):
        folder = work / str(moment)
        assert attempt(lambda folder=folder: embedded(folder), WATCHED, moment) is None
        encoded.clear()
        same = np.array_equal(embedded(folder).features, whole)
        found.append({"same": same, "encoded": sum(encoded)})
    print(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
