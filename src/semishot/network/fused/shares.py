"""How much of each unlabeled image goes to each prototype (Eqs. 4-9), forward and backward, inside kernels.

All methods are one formula: a softmax over the classes and, for `distractor_cluster` and `cosine_kmeans`, one
cluster more, times a mask, which is 1 except for `masked_soft_kmeans` and `fitted_mask`. A run's six settings
say which it uses. Letters as in `steps.py`.
"""

import triton
import triton.language as tl

from semishot.network.fused import fitted
from semishot.refine import cosine_kmeans, masked_soft_kmeans

SUPERVISED, SOFT_KMEANS, CLUSTER, MASKED, FITTED, COSINE, COSINE_ALONE = range(7)
"""Settings of a run: its method, ..."""
IS_CLUSTER, IS_MASKED, IS_FITTED = tl.constexpr(CLUSTER), tl.constexpr(MASKED), tl.constexpr(FITTED)
IS_SUPERVISED, IS_COSINE = tl.constexpr(SUPERVISED), tl.constexpr(COSINE)
SETTINGS = tl.constexpr(6)
"""... its place among the parameters, the divisor of distances, the mask's power, 1 if gradients through the
assignments are stopped, and 1 if queries are scored over the other cluster, too."""
WITH_CLUSTER, WITH_MASK, WITH_FIT, WITH_COSINES = (tl.constexpr(1 << bit) for bit in range(4))
"""What a kernel is compiled with, as a sum: what any of its runs needs."""
HIDDEN, HIDDEN_ROUNDED = tl.constexpr(masked_soft_kmeans.HIDDEN), tl.constexpr(32)
LINK_LIMIT = tl.constexpr(masked_soft_kmeans.LINK_LIMIT)
SPEED = tl.constexpr(cosine_kmeans.SPEED)


@triton.jit
def logits(
    d, squares, cosines, settings, parameters, run, way, NP: tl.constexpr, WITH: tl.constexpr
):
    """Those of the classes (U, N) and of one more cluster (U,), minus infinity where there is none."""
    kind = tl.load(settings + run * SETTINGS)
    place = tl.load(settings + run * SETTINGS + 1)
    divisor = tl.load(settings + run * SETTINGS + 2).to(tl.float32)
    each = -d / divisor  # Eq. 4
    other = squares * 0 + float("-inf")
    if WITH_CLUSTER & WITH:
        is_cluster = kind == IS_CLUSTER
        log_r = tl.load(parameters[0] + place, mask=is_cluster, other=0)
        of_origin = -squares / (divisor * tl.exp(2 * log_r)) - log_r  # Eq. 6
        other = tl.where(is_cluster, of_origin, other)
    if WITH_COSINES & WITH:
        is_cosine = kind >= IS_COSINE
        scale = tl.exp(tl.load(parameters[5] + place, mask=is_cosine, other=0) * SPEED)
        threshold = tl.load(parameters[6] + place, mask=is_cosine, other=0) * SPEED
        each = tl.where(is_cosine, scale * cosines, each)
        other = tl.where(kind == IS_COSINE, scale * threshold, other)
    return tl.where(tl.arange(0, NP)[None, :] < way, each, float("-inf")), other


@triton.jit
def assignments(each, other):
    """The softmax: shares (U, N) of the classes and (U,) of the other cluster."""
    top = tl.maximum(tl.max(each, 1), other)
    each = tl.exp(each - top[:, None])
    other = tl.exp(other - top)
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
def raised(mask, power):
    """mask ** power, a whole number from 1."""
    power = power.to(tl.float32)
    more = tl.exp(power * tl.log(mask))
    return tl.where(power == 1, mask, tl.where(power == 2, mask * mask, more))


@triton.jit
def learned_mask(d, valid, parameters, place, masked, unlabeled, way, NP: tl.constexpr):
    """Eqs. 7-9: the mask (U, N), and what its gradients need."""
    _, w1, b1, w2, b2, _, _ = parameters
    z, mean, low, high, variance, skew, kurtosis = statistics(d, valid, unlabeled, way, NP)
    hidden = hidden_layer(low, high, variance, skew, kurtosis, w1, b1, place, masked)
    beta, beta_inside = link(hidden, w2, b2, place, masked, 0)
    gamma, gamma_inside = link(hidden, w2, b2, place, masked, 1)
    mask = tl.sigmoid(-gamma[None, :] * (z - beta[None, :]))
    stats = low, high, variance, skew, kurtosis
    return mask, z, mean, stats, hidden, beta, beta_inside, gamma, gamma_inside


@triton.jit
def forward(
    d, squares, cosines, valid, settings, parameters, run, way, unlabeled,
    NP: tl.constexpr, WITH: tl.constexpr,
):  # fmt: skip
    """Squared distances (U, N), and cosines (U, N) for the methods that use them -> the weights of Eq. 9, or
    those of Eq. 4 or 6, (U, N); and of the other cluster (U,)."""
    each, other = logits(d, squares, cosines, settings, parameters, run, way, NP, WITH)
    weights, other = assignments(each, other)
    kind = tl.load(settings + run * SETTINGS)
    place = tl.load(settings + run * SETTINGS + 1)
    power = tl.load(settings + run * SETTINGS + 3)
    if WITH_MASK & WITH:
        masked = kind == IS_MASKED
        mask, _, _, _, _, _, _, _, _ = learned_mask(
            d, valid, parameters, place, masked, unlabeled, way, NP
        )
        weights *= tl.where(masked, raised(mask, power), 1)
    if WITH_FIT & WITH:
        slope, product = fitted.mixture(d, valid, unlabeled, way)
        mask = tl.sigmoid(product - slope * d)
        weights *= tl.where(kind == IS_FITTED, raised(mask, power), 1)
    return tl.where(valid & (kind != IS_SUPERVISED), weights, 0), other


@triton.jit
def backward(
    grad, other_grad, d, squares, cosines, valid, settings, parameters, grads, scale,
    run, way, unlabeled, NP: tl.constexpr, WITH: tl.constexpr, ADD: tl.constexpr,
):  # fmt: skip
    """The gradients (U, N) of the weights and (U,) of the other cluster's shares -> those of distances
    (U, N), squares (U,) and cosines (U, N), and two sums over these images: the gradients of log r, or of
    the two parameters of `cosine_kmeans`.

    Those of the mask's parameters are stored, times `scale`, or added to what is there.
    """
    each, other = logits(d, squares, cosines, settings, parameters, run, way, NP, WITH)
    shares, other_share = assignments(each, other)
    kind = tl.load(settings + run * SETTINGS)
    place = tl.load(settings + run * SETTINGS + 1)
    divisor = tl.load(settings + run * SETTINGS + 2).to(tl.float32)
    power = tl.load(settings + run * SETTINGS + 3)
    through = 1 - tl.load(settings + run * SETTINGS + 4).to(tl.float32)
    grad = tl.where(valid & (kind != IS_SUPERVISED), grad, 0)
    share_grad = grad
    d_grad = grad * 0
    if WITH_MASK & WITH:
        masked = kind == IS_MASKED
        mask, z, mean, stats, hidden, beta, beta_inside, gamma, gamma_inside = learned_mask(
            d, valid, parameters, place, masked, unlabeled, way, NP
        )
        times = raised(mask, power)
        share_grad = grad * tl.where(masked, times, 1)
        inner = tl.where(masked, grad * shares * power * times * (1 - mask), 0)
        z_grad = -gamma[None, :] * inner
        beta_grad = tl.sum(gamma[None, :] * inner, 0)
        gamma_grad = -tl.sum((z - beta[None, :]) * inner, 0)
        some = tl.sum(tl.where(valid, d, 0), 0) > 0  # else the mean is the constant 1
        of_mean = tl.where(some, tl.sum(z_grad * z, 0) / (mean * unlabeled), 0)
        d_grad = z_grad / mean[None, :] - of_mean[None, :]
        out0 = tl.where(beta_inside, beta_grad * beta, 0)  # (N,)
        out1 = tl.where(gamma_inside, gamma_grad * gamma, 0)
        store_network(
            scale * out0, scale * out1, stats, hidden, parameters[3], grads, place, masked, ADD
        )
    if WITH_FIT & WITH:
        is_fitted = kind == IS_FITTED
        slope, product = fitted.mixture(d, valid, unlabeled, way)
        mask = tl.sigmoid(product - slope * d)
        times = raised(mask, power)
        share_grad = tl.where(is_fitted, grad * times, share_grad)
        inner = grad * shares * power * times * (1 - mask)
        d_grad = tl.where(is_fitted, -slope * inner, d_grad)
    mean_grad = tl.sum(shares * share_grad, 1) + other_share * other_grad
    each_grad = through * shares * (share_grad - mean_grad[:, None])
    rest_grad = through * other_share * (other_grad - mean_grad)
    squares_grad = mean_grad * 0
    cosines_grad = d_grad * 0
    first, second = tl.sum(squares_grad, 0), tl.sum(squares_grad, 0)
    if WITH_CLUSTER & WITH:
        is_cluster = kind == IS_CLUSTER
        log_r = tl.load(parameters[0] + place, mask=is_cluster, other=0)
        over = divisor * tl.exp(2 * log_r)
        squares_grad = tl.where(is_cluster, -rest_grad / over, 0)
        first = tl.sum(tl.where(is_cluster, rest_grad * (2 * squares / over - 1), 0), 0)
    if WITH_COSINES & WITH:
        is_cosine = kind >= IS_COSINE
        sharpness = tl.exp(tl.load(parameters[5] + place, mask=is_cosine, other=0) * SPEED)
        cosines_grad = tl.where(is_cosine & valid, each_grad * sharpness, 0)
        of_scale = tl.sum(each_grad * tl.where(valid, each, 0), 1)
        of_scale += rest_grad * tl.where(kind == IS_COSINE, other, 0)
        first = tl.where(is_cosine, tl.sum(of_scale, 0) * SPEED, first)
        of_threshold = tl.where(kind == IS_COSINE, sharpness * rest_grad, 0)
        second = tl.where(is_cosine, tl.sum(of_threshold, 0) * SPEED, second)
        each_grad = tl.where(is_cosine, 0, each_grad)
    d_grad -= each_grad / divisor
    return tl.where(valid, d_grad, 0), squares_grad, cosines_grad, first, second


@triton.jit
def put(at, value, mask, ADD: tl.constexpr):
    """Store a value, or add it to what is there."""
    if ADD:
        value += tl.load(at, mask=mask, other=0)
    tl.store(at, value, mask=mask)


@triton.jit
def store_network(out0, out1, stats, hidden, w2, grads, place, masked, ADD: tl.constexpr):
    """From the gradients of Eq. 8's outputs (N,) to those of its weights and biases."""
    _, w1_grad, b1_grad, w2_grad, b2_grad, _, _ = grads
    j = tl.arange(0, HIDDEN_ROUNDED)
    real = (j < HIDDEN) & masked
    put(b2_grad + place * 2, tl.sum(out0, 0), masked, ADD)
    put(b2_grad + place * 2 + 1, tl.sum(out1, 0), masked, ADD)
    at = (place * HIDDEN + j) * 2
    put(w2_grad + at, tl.sum(hidden * out0[:, None], 0), real, ADD)
    put(w2_grad + at + 1, tl.sum(hidden * out1[:, None], 0), real, ADD)
    pre = out0[:, None] * tl.load(w2 + at, mask=real, other=0)[None, :]
    pre += out1[:, None] * tl.load(w2 + at + 1, mask=real, other=0)[None, :]
    pre *= 1 - hidden * hidden  # (N, hidden units)
    put(b1_grad + place * HIDDEN + j, tl.sum(pre, 0), real, ADD)
    at = place * 5 * HIDDEN + j
    for statistic in tl.static_range(5):
        value = tl.sum(stats[statistic][:, None] * pre, 0)
        put(w1_grad + at + statistic * HIDDEN, value, real, ADD)


@triton.jit
def store_sums(first, second, settings, grads, run, WITH: tl.constexpr, ADD: tl.constexpr):
    """The last two of what `backward` returns, summed over all images."""
    kind = tl.load(settings + run * SETTINGS)
    place = tl.load(settings + run * SETTINGS + 1)
    if WITH_CLUSTER & WITH:
        put(grads[0] + place, first, kind == IS_CLUSTER, ADD)
    if WITH_COSINES & WITH:
        put(grads[5] + place, first, kind >= IS_COSINE, ADD)
        put(grads[6] + place, second, kind >= IS_COSINE, ADD)
