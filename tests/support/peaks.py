"""The most memory that a function takes, measured in a process of its own that is a copy of this one."""

import gc
import os
import struct
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple


class Measured(NamedTuple):
    megabytes: float
    """The peak, beyond what the process had before the call."""
    seconds: float
    """Of the processor."""
    failed: bool


def measured(work: Callable[[], object], refusals: type[Exception] = ArithmeticError) -> Measured:
    """Call `work` in a copy of this process. Only Linux tells the peak of a process by its memory."""
    reading, writing = os.pipe()
    gc.collect()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # other threads: the copy calls none
        child = os.fork()
    if child == 0:
        code = 1
        try:
            before, start = _status("VmRSS"), time.process_time()
            failed = False
            try:
                work()
            except refusals:
                failed = True
            spent = time.process_time() - start
            answer = struct.pack("dd?", (_status("VmHWM") - before) / 1e6, spent, failed)
            os.write(writing, answer)
            code = 0
        finally:
            os._exit(code)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        answer = pipe.read()
    _, status = os.waitpid(child, 0)
    assert status == 0, f"the measured process ended with {status}"
    return Measured(*struct.unpack("dd?", answer))


def _status(field: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    (line,) = [line for line in lines if line.startswith(f"{field}:")]
    return int(line.split()[1]) * 1024
