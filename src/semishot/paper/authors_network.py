"""The random network of the paper's Table 5 ("CNN rnd"), weight for weight (Appendix C).

The authors' code draws the weights of each layer with TensorFlow's truncated normal, standard deviation
0.01 and seed 0, in a graph without a seed of its own. TensorFlow then takes its default for the graph: every
run has the same network, and the layers of one shape in it are identical. TensorFlow draws from Philox 4x32
with ten rounds (Salmon et al., 2011), as below; the tests compare with numbers that TensorFlow has drawn.
"""

import numpy as np
import torch
from numpy.typing import NDArray

from semishot.network.encoder import ConvEncoder

GRAPH_SEED, LAYER_SEED, STD = 87654321, 0, 0.01
NEVER_BOTH_0 = 2**31 - 1
"""TensorFlow's seed of a layer where both seeds would be 0."""
TOGETHER, BLOCKS_EACH = 4, 256
"""Four weights are drawn from a stretch of 256 blocks of their own; most of it is never needed."""
PAIRS = 16
"""Pairs of normal values looked at for each four: the one in 22 that is beyond two deviations is left out."""
MULTIPLIERS, INCREMENTS = (0xD2511F53, 0xCD9E8D57), (0x9E3779B9, 0xBB67AE85)
LOW = np.uint64(0xFFFFFFFF)

Words = NDArray[np.uint64]


def authors_network(channels: int, filters: int, seed: int | None = None) -> ConvEncoder:
    """With the graph's seed that the authors give each training: 0, 1001, ..., 9009; None: the default."""
    encoder = ConvEncoder(channels, filters)
    with torch.no_grad():
        for weight in encoder.weights:
            outputs, inputs, height, width = weight.shape[1:]
            drawn = truncated_normal(weight.numel(), seed).reshape(height, width, inputs, outputs)
            weight[0] = torch.from_numpy(drawn.transpose(3, 2, 0, 1).copy())
    return encoder.eval()


def truncated_normal(count: int, seed: int | None = None) -> NDArray[np.float32]:
    """(count,): what TensorFlow draws for a tensor of so many numbers, in a graph of this seed."""
    groups = -(-count // TOGETHER)
    words = philox(np.arange(groups)[:, None] * BLOCKS_EACH + np.arange(PAIRS // 2), seed)
    radius, angle = uniform(words.reshape(groups, PAIRS, 2)).transpose(2, 0, 1)
    radius = np.sqrt(-2 * np.log(np.maximum(radius, np.float32(1e-7))))
    angle = np.float32(2 * np.pi) * angle
    normal = np.stack([radius * np.sin(angle), radius * np.cos(angle)], -1).reshape(groups, -1)
    near = np.argsort(np.abs(normal) >= 2, axis=1, kind="stable")[:, :TOGETHER]
    return np.float32(STD) * np.take_along_axis(normal, near, 1).ravel()[:count]


def philox(block: NDArray[np.int64], seed: int | None = None) -> Words:
    """(...) -> (..., 4): the four random words of each block."""
    layer = NEVER_BOTH_0 if seed == 0 else LAYER_SEED
    a, c = block.astype(np.uint64) & LOW, np.full(block.shape, layer, np.uint64)
    b, d = block.astype(np.uint64) >> np.uint64(32), np.zeros(block.shape, np.uint64)
    keys = [GRAPH_SEED if seed is None else seed, 0]
    for _ in range(10):
        first, second = (np.uint64(m) * x for m, x in zip(MULTIPLIERS, (a, c), strict=True))
        even, odd = (np.uint64(key) for key in keys)
        a, b = (second >> np.uint64(32)) ^ b ^ even, second & LOW
        c, d = (first >> np.uint64(32)) ^ d ^ odd, first & LOW
        keys = [(key + more) & 0xFFFFFFFF for key, more in zip(keys, INCREMENTS, strict=True)]
    return np.stack([a, b, c, d], -1)


def uniform(words: Words) -> NDArray[np.float32]:
    """In [0, 1), from the lower 23 bits."""
    return ((words & np.uint64(0x7FFFFF)) / np.float64(2**23)).astype(np.float32)
