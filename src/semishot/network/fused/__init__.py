"""Training on CUDA in a few kernels (Triton): the encoder's blocks, refinement and loss, Adam.

The plain reference is in `encoder.py`, `prototypes.py` and `refine`.
"""

from semishot.network.fused.adam import OneKernelAdam
from semishot.network.fused.block import block
from semishot.network.fused.episode import episode_losses
from semishot.network.fused.first_block import first_block
from semishot.network.fused.launching import compiled_ahead
from semishot.network.fused.methods import Methods, methods_of
from semishot.network.fused.plan import Sizes, plan_of

__all__ = [
    "Methods",
    "OneKernelAdam",
    "Sizes",
    "block",
    "compiled_ahead",
    "episode_losses",
    "first_block",
    "methods_of",
    "plan_of",
]
