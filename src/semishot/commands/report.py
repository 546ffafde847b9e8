"""`semishot results`, `report` and `show ...`: pages from result files, and drawings of episodes."""

from pathlib import Path
from typing import Annotated

import tyro

from semishot.commands.flags import Flags, Picture
from semishot.errors import InputError
from semishot.paper.requests import REFINEMENT_PICTURE, EpisodeRequest
from semishot.system.devices import DataRoot

REFINEMENT = EpisodeRequest(shape=REFINEMENT_PICTURE)


def results(
    folder: Path = Path("results"),
    out: Path = Path("docs/results.md"),
    fill: tuple[Path, ...] = (),
) -> None:
    """Write the results page and its figures from published result files.

    Args:
        folder: The folder of published result files, as `reproduce --publish` writes them.
        out: The page.
        fill: Other pages, whose marked tables are made from these files too.
    """
    from semishot.report.results_page import write_results

    write_results(folder, out, fill)
    print("\n".join(map(str, (out, *fill))))


def report(
    sources: Annotated[tyro.conf.Positional[tuple[Path, ...]], tyro.conf.arg(metavar="RESULTS")],
    out: Annotated[Path, tyro.conf.arg(aliases=["-o"])] = Path("report.html"),
    episodes: int = 2,
    data_root: DataRoot = None,
) -> None:
    """Write one self-contained HTML page from result files: tables, charts, episodes, settings.

    Args:
        sources: Result files, and folders of published results, of runs or of what `evaluate --json`
            printed.
        out: The page.
        episodes: Test episodes to show of each trained model whose data are prepared.
    """
    from semishot.report.page import write_report

    if not sources:
        raise InputError("give result files, or folders of them")
    write_report(sources, out, data_root, episodes)
    print(out)


def episode(
    request: Flags[EpisodeRequest],
    out: Picture = Path("episode.svg"),
    data_root: DataRoot = None,
) -> None:
    """Draw a test episode: support, unlabeled with the distractors marked, query with predictions."""
    from semishot.paper.viewed_episode import view_episode
    from semishot.report import pictures

    pictures.write_picture(pictures.episode_picture(view_episode(request, data_root)), out)
    print(out)


def refinement(
    request: Flags[EpisodeRequest] = REFINEMENT,
    out: Picture = Path("refinement.svg"),
    data_root: DataRoot = None,
) -> None:
    """Draw the embeddings of a test episode in two dimensions, and where refinement moves prototypes."""
    from semishot.paper.viewed_episode import view_episode
    from semishot.report import pictures

    pictures.write_picture(pictures.refinement_picture(view_episode(request, data_root)), out)
    print(out)
