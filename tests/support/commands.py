"""Commands in this process: what they print, and the line with which they refuse wrong input."""

import pytest

from semishot.commands.main import main
from support.own_images import DRAWN


def printed(capsys, *arguments: object) -> str:
    """What a command prints to stdout."""
    main([str(argument) for argument in arguments])
    return capsys.readouterr().out


def classified(capsys, labeled: object, pile: object, *more: object) -> str:
    """What `classify` prints of a pile of drawings, sorted to `out`."""
    where = ["--labeled", labeled, "--unlabeled", pile, "--out", "out"]
    return printed(capsys, "classify", *where, *DRAWN, *more)


def refusal(capsys, *arguments: object) -> str:
    """The one line on stderr, with exit code 2 and nothing on stdout."""
    with pytest.raises(SystemExit) as stopped:
        main([str(argument) for argument in arguments])
    out, err = capsys.readouterr()
    assert (stopped.value.code, out) == (2, "")
    assert err.startswith("semishot: ")
    assert err.endswith("\n")
    assert err.count("\n") == 1
    return err
