"""`semishot show episode|refinement`: parse, call one function, print."""

from pathlib import Path

from semishot.commands.flags import Flags, Picture
from semishot.paper.requests import REFINEMENT_PICTURE, SceneRequest
from semishot.system.flags import DataRoot

REFINEMENT = SceneRequest(shape=REFINEMENT_PICTURE)


def episode(
    request: Flags[SceneRequest],
    out: Picture = Path("episode.png"),
    data_root: DataRoot = None,
) -> None:
    """Draw a test episode: support, unlabeled with the distractors marked, query with predictions."""
    from semishot.paper.scenes import scene_of
    from semishot.report import pictures

    pictures.draw_episode(scene_of(request, data_root), out)
    print(out)


def refinement(
    request: Flags[SceneRequest] = REFINEMENT,
    out: Picture = Path("refinement.png"),
    data_root: DataRoot = None,
) -> None:
    """Draw the embeddings of a test episode in two dimensions, and where refinement moves prototypes."""
    from semishot.paper.scenes import scene_of
    from semishot.report import pictures

    pictures.draw_refinement(scene_of(request, data_root), out)
    print(out)
