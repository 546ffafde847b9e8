"""The encoder's blocks fused for CUDA (Triton), in bf16; `encoder.py` holds the plain reference."""

from semishot.network.fused.first_block import first_block, patch_moments
from semishot.network.fused.norm_relu_pool import norm_relu_pool

__all__ = ["first_block", "norm_relu_pool", "patch_moments"]
