"""Tasks on devices and machines: the engine, Ray, places.

Here are the flags that choose them; this file imports no torch.
"""

from dataclasses import dataclass
from typing import Literal

from semishot.system.devices import Address


@dataclass(frozen=True)
class Workers:
    """Other processes or machines; by default this process alone."""

    engine: Literal["local", "ray"] | None = None
    """local trains on every GPU of this machine, or on its cores, a process each; ray on the
    machines of a cluster. Without it, this process, or local where there are several GPUs."""
    address: Address = None


THIS_PROCESS = Workers()
