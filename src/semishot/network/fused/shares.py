"""How much of each unlabeled image goes to each prototype (Eqs. 4-9), forward and backward, inside kernels.

All methods are one formula: a softmax over the classes and, for `distractor_cluster`, one cluster more, times
a mask, which is 1 except for `masked_soft_kmeans`. A run's five settings say which it uses.
Letters as in `episode.py`.
"""

import triton
import triton.language as tl

SUPERVISED, SOFT_KMEANS, CLUSTER, MASKED = range(4)
"""Settings of a run: its method, ..."""
IS_CLUSTER, IS_MASKED = tl.constexpr(CLUSTER), tl.constexpr(MASKED)
SETTINGS = tl.constexpr(5)
"""... its place among the parameters, the divisor of distances, the mask's power, and 1 if gradients through
the assignments are stopped."""
HIDDEN, HIDDEN_ROUNDED = tl.constexpr(20), tl.constexpr(32)
LINK_LIMIT = tl.constexpr(30.0)


@triton.jit
def assignments(
    d, squares, settings, log_radius, run, way,
    NP: tl.constexpr, WITH_CLUSTER: tl.constexpr,
):  # fmt: skip
    """Eqs. 4 and 6: shares (U, N) of the classes and (U,) of the distractor cluster."""
    divisor = tl.load(settings + run * SETTINGS + 2).to(tl.float32)
    logits = tl.where(tl.arange(0, NP)[None, :] < way, -d / divisor, float("-inf"))
    top = tl.max(logits, 1)
    if WITH_CLUSTER:
        is_cluster = tl.load(settings + run * SETTINGS) == IS_CLUSTER
        place = tl.load(settings + run * SETTINGS + 1)
        log_r = tl.load(log_radius + place, mask=is_cluster, other=0)
        other = -squares / (divisor * tl.exp(2 * log_r)) - log_r
        other = tl.where(is_cluster, other, float("-inf"))
        top = tl.maximum(top, other)
        other = tl.exp(other - top)
    else:
        other = top * 0
    each = tl.exp(logits - top[:, None])
    total = tl.sum(each, 1) + other
    return each / total[:, None], other / total


@triton.jit
def statistics(d, valid, unlabeled, way, NP: tl.constexpr):
    """Eq. 7 and the five statistics of Eq. 8: distances over their mean (U, N); the mean, or 1, (N,); and
    minimum, maximum, variance, skewness and excess kurtosis (N,)."""
    mean = tl.sum(tl.where(valid, d, 0), 0) / unlabeled
    mean = tl.where(mean > 0, mean, 1)
    z = d / mean[None, :]
    exists = tl.arange(0, NP) < way
    low = tl.where(exists, tl.min(tl.where(valid, z, float("inf")), 0), 0)
    high = tl.where(exists, tl.max(tl.where(valid, z, float("-inf")), 0), 0)
    center = tl.sum(tl.where(valid, z, 0), 0) / unlabeled
    centered = tl.where(valid, z - center[None, :], 0)
    variance = tl.sum(centered * centered, 0) / unlabeled
    standard = centered / tl.sqrt(tl.where(variance > 0, variance, 1))[None, :]
    cubes = standard * standard * standard
    skew = tl.sum(cubes, 0) / unlabeled
    kurtosis = tl.sum(cubes * standard, 0) / unlabeled - 3
    return z, mean, low, high, variance, skew, tl.where(exists, kurtosis, 0)


@triton.jit
def hidden_layer(low, high, variance, skew, kurtosis, w1, b1, place, masked):
    """tanh of Eq. 8's first layer: (N, hidden units)."""
    j = tl.arange(0, HIDDEN_ROUNDED)
    real = (j < HIDDEN) & masked
    w1 += place * 5 * HIDDEN + j
    out = tl.load(b1 + place * HIDDEN + j, mask=real, other=0)[None, :]
    out += low[:, None] * tl.load(w1, mask=real, other=0)[None, :]
    out += high[:, None] * tl.load(w1 + HIDDEN, mask=real, other=0)[None, :]
    out += variance[:, None] * tl.load(w1 + 2 * HIDDEN, mask=real, other=0)[None, :]
    out += skew[:, None] * tl.load(w1 + 3 * HIDDEN, mask=real, other=0)[None, :]
    out += kurtosis[:, None] * tl.load(w1 + 4 * HIDDEN, mask=real, other=0)[None, :]
    return 2 * tl.sigmoid(2 * out) - 1


@triton.jit
def link(hidden, w2, b2, place, masked, output: tl.constexpr):
    """One of Eq. 8's outputs (N,): its exponential, and whether it is within the limits."""
    j = tl.arange(0, HIDDEN_ROUNDED)
    weight = tl.load(w2 + (place * HIDDEN + j) * 2 + output, mask=(j < HIDDEN) & masked, other=0)
    out = tl.sum(hidden * weight[None, :], 1)
    out += tl.load(b2 + place * 2 + output, mask=masked, other=0)
    inside = (out >= -LINK_LIMIT) & (out <= LINK_LIMIT)
    return tl.exp(tl.minimum(tl.maximum(out, -LINK_LIMIT), LINK_LIMIT)), inside


@triton.jit
def forward(
    d, squares, valid, settings, log_radius, w1, b1, w2, b2, run, way, unlabeled,
    NP: tl.constexpr, WITH_CLUSTER: tl.constexpr, WITH_MASK: tl.constexpr,
):  # fmt: skip
    """Squared distances (U, N) -> the weights of Eq. 9, or those of Eq. 4 or 6, (U, N)."""
    weights, _ = assignments(d, squares, settings, log_radius, run, way, NP, WITH_CLUSTER)
    if WITH_MASK:
        masked = tl.load(settings + run * SETTINGS) == IS_MASKED
        place = tl.load(settings + run * SETTINGS + 1)
        z, _, low, high, variance, skew, kurtosis = statistics(d, valid, unlabeled, way, NP)
        hidden = hidden_layer(low, high, variance, skew, kurtosis, w1, b1, place, masked)
        beta, _ = link(hidden, w2, b2, place, masked, 0)
        gamma, _ = link(hidden, w2, b2, place, masked, 1)
        mask = tl.sigmoid(-gamma[None, :] * (z - beta[None, :]))
        twice = tl.load(settings + run * SETTINGS + 3) == 2
        weights *= tl.where(masked, tl.where(twice, mask * mask, mask), 1)
    return tl.where(valid, weights, 0)


@triton.jit
def backward(
    grad, d, squares, valid, settings, log_radius, w1, b1, w2, b2,
    radius_grad, w1_grad, b1_grad, w2_grad, b2_grad, run, way, unlabeled,
    NP: tl.constexpr, WITH_CLUSTER: tl.constexpr, WITH_MASK: tl.constexpr,
):  # fmt: skip
    """The gradient (U, N) of the weights -> those of the distances (U, N) and of the squares (U,).

    Those of the parameters are stored.
    """
    shares, other = assignments(d, squares, settings, log_radius, run, way, NP, WITH_CLUSTER)
    kind = tl.load(settings + run * SETTINGS)
    place = tl.load(settings + run * SETTINGS + 1)
    divisor = tl.load(settings + run * SETTINGS + 2).to(tl.float32)
    through = 1 - tl.load(settings + run * SETTINGS + 4).to(tl.float32)
    grad = tl.where(valid, grad, 0)
    share_grad = grad
    d_grad = grad * 0
    if WITH_MASK:
        masked = kind == IS_MASKED
        z, mean, low, high, variance, skew, kurtosis = statistics(d, valid, unlabeled, way, NP)
        hidden = hidden_layer(low, high, variance, skew, kurtosis, w1, b1, place, masked)
        beta, beta_inside = link(hidden, w2, b2, place, masked, 0)
        gamma, gamma_inside = link(hidden, w2, b2, place, masked, 1)
        mask = tl.sigmoid(-gamma[None, :] * (z - beta[None, :]))
        twice = tl.load(settings + run * SETTINGS + 3) == 2
        share_grad = grad * tl.where(masked, tl.where(twice, mask * mask, mask), 1)
        inner = grad * shares * tl.where(twice, 2 * mask, 1) * mask * (1 - mask)
        inner = tl.where(masked, inner, 0)
        z_grad = -gamma[None, :] * inner
        beta_grad = tl.sum(gamma[None, :] * inner, 0)
        gamma_grad = -tl.sum((z - beta[None, :]) * inner, 0)
        some = tl.sum(tl.where(valid, d, 0), 0) > 0  # else the mean is the constant 1
        of_mean = tl.where(some, tl.sum(z_grad * z, 0) / (mean * unlabeled), 0)
        d_grad = z_grad / mean[None, :] - of_mean[None, :]
        j = tl.arange(0, HIDDEN_ROUNDED)
        real = (j < HIDDEN) & masked
        out0 = tl.where(beta_inside, beta_grad * beta, 0)  # (N,)
        out1 = tl.where(gamma_inside, gamma_grad * gamma, 0)
        tl.store(b2_grad + place * 2, tl.sum(out0, 0), mask=masked)
        tl.store(b2_grad + place * 2 + 1, tl.sum(out1, 0), mask=masked)
        at = (place * HIDDEN + j) * 2
        tl.store(w2_grad + at, tl.sum(hidden * out0[:, None], 0), mask=real)
        tl.store(w2_grad + at + 1, tl.sum(hidden * out1[:, None], 0), mask=real)
        pre = out0[:, None] * tl.load(w2 + at, mask=real, other=0)[None, :]
        pre += out1[:, None] * tl.load(w2 + at + 1, mask=real, other=0)[None, :]
        pre *= 1 - hidden * hidden  # (N, hidden units)
        tl.store(b1_grad + place * HIDDEN + j, tl.sum(pre, 0), mask=real)
        at = place * 5 * HIDDEN + j
        tl.store(w1_grad + at, tl.sum(low[:, None] * pre, 0), mask=real)
        tl.store(w1_grad + at + HIDDEN, tl.sum(high[:, None] * pre, 0), mask=real)
        tl.store(w1_grad + at + 2 * HIDDEN, tl.sum(variance[:, None] * pre, 0), mask=real)
        tl.store(w1_grad + at + 3 * HIDDEN, tl.sum(skew[:, None] * pre, 0), mask=real)
        tl.store(w1_grad + at + 4 * HIDDEN, tl.sum(kurtosis[:, None] * pre, 0), mask=real)
    mean_grad = tl.sum(shares * share_grad, 1)
    d_grad -= through * shares * (share_grad - mean_grad[:, None]) / divisor
    squares_grad = mean_grad * 0
    if WITH_CLUSTER:
        is_cluster = kind == IS_CLUSTER
        log_r = tl.load(log_radius + place, mask=is_cluster, other=0)
        over = divisor * tl.exp(2 * log_r)
        other_grad = -other * mean_grad
        squares_grad = -other_grad / over
        each = other_grad * (2 * squares / over - 1)
        tl.store(radius_grad + place, tl.sum(each, 0), mask=is_cluster)
    return tl.where(valid, d_grad, 0), squares_grad
