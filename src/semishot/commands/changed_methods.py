"""A warning where numbers may be those of an earlier state of a user's own method."""

import sys
from collections.abc import Iterable


def tell_of_changed(trained: Iterable[tuple[str, str]]) -> None:
    """For pairs of a method and the date of its training: runs that exist are not trained again."""
    from semishot.training.origin import saved_after

    first: dict[str, str] = {}
    for method, date in trained:
        if ":" in method:
            first[method] = min(date, first.get(method, date))
    for method, date in first.items():
        if file := saved_after(method, date):
            print(
                f"{method} was trained on {date}, and {file.name} was saved later: if the method has "
                "changed, delete its run folders, or choose another --runs or --out, to train it again",
                file=sys.stderr,
            )
