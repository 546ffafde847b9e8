"""Do some work in a child that kills itself at a chosen event of our own code.

An event is a call or a return, of Python or C, in one of the watched files: so the moments lie densest
where a kill could do harm.
"""

import os
import signal
import sys
import traceback
from collections.abc import Callable, Collection


def attempt(
    work: Callable[[], object], watched: Collection[str], kill_at: int | None = None
) -> int | None:
    """The number of events if it finished, None if it was killed on the way."""
    reader, writer = os.pipe()
    child = os.fork()
    if child:
        os.close(writer)
        with os.fdopen(reader) as pipe:
            events = pipe.read()
        _, status = os.waitpid(child, 0)
        killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
        assert killed or status == 0, "the child failed; its traceback is above"
        return None if killed else int(events)
    seen = 0

    def count(frame, event, argument):
        nonlocal seen
        if frame.f_code.co_filename in watched:
            seen += 1
            if seen == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)

    try:
        sys.setprofile(count)
        work()
        sys.setprofile(None)
        os.write(writer, str(seen).encode())
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        os._exit(1)
