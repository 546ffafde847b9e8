"""`semishot results` and `semishot report`: pages from result files."""

from pathlib import Path
from typing import Annotated

import tyro

from semishot.system.flags import DataRoot


def results(folder: Path = Path("results"), out: Path = Path("docs/results.md")) -> None:
    """Write the results page and its figures from published result files.

    Args:
        folder: Where `reproduce --publish` has put them.
        out: The page.
    """
    from semishot.report import results

    results.write_results(folder, out)
    print(out)


def report(
    source: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RESULTS")],
    out: Annotated[Path, tyro.conf.arg(aliases=["-o"])] = Path("report.html"),
    episodes: int = 2,
    data_root: DataRoot = None,
) -> None:
    """Write one self-contained HTML page from result files: tables, charts, episodes, settings.

    Args:
        source: A folder of published results or of runs, or one result file.
        out: The page.
        episodes: Test episodes to show of each trained model whose data are prepared.
    """
    from semishot.report.page import write_report

    write_report(source, out, data_root, episodes)
    print(out)
