"""`semishot results`, `report` and `show ...`: pages from result files, and drawings of episodes."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import tyro

from semishot.commands.flags import Flags, Picture
from semishot.errors import InputError
from semishot.paper.requests import REFINEMENT_PICTURE, TASK_PICTURE, EpisodeRequest
from semishot.system.devices import DataRoot


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


def drawing(name: str, title: str, default: EpisodeRequest) -> Callable[..., None]:
    """The command that draws a test episode in one way, by default the episode of `default`."""

    def command(
        request: Flags[EpisodeRequest] = default,
        out: Picture = Path(f"{name}.svg"),
        data_root: DataRoot = None,
    ) -> None:
        from semishot.paper.viewed_episode import view_episode
        from semishot.report import pictures

        draw = getattr(pictures, f"{name}_picture")
        pictures.write_picture(draw(view_episode(request, data_root)), out)
        print(out)

    command.__doc__ = title
    return command


def hierarchy(out: Picture = Path("hierarchy.svg")) -> None:
    """Draw the categories of tieredImageNet as a tree, with their splits (Figure 5)."""
    from semishot.report import pictures

    pictures.write_picture(pictures.hierarchy_picture(), out)
    print(out)


task = drawing(
    "task",
    "Draw the task: labeled images of new classes, and an unlabeled pile with others in it (Figure 1).",
    EpisodeRequest(model="pixels", dataset="glyphs", shape=TASK_PICTURE),
)
episode = drawing(
    "episode",
    "Draw a test episode: support, unlabeled with the distractors marked, query with predictions.",
    EpisodeRequest(),
)
refinement = drawing(
    "refinement",
    "Draw the embeddings of a test episode in two dimensions, and where refinement moves prototypes.",
    EpisodeRequest(shape=REFINEMENT_PICTURE),
)
