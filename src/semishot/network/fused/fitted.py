"""The mixture of `refine/fitted_mask.py`, fitted inside a kernel. Letters as in `steps.py`."""

import triton
import triton.language as tl

from semishot.refine import fitted_mask

ITERATIONS = tl.constexpr(fitted_mask.ITERATIONS)
ANCHOR, SMALLEST = tl.constexpr(fitted_mask.ANCHOR), tl.constexpr(fitted_mask.SMALLEST)
LARGEST = tl.constexpr(fitted_mask.LARGEST)


@triton.jit
def mixture(d, valid, unlabeled, way):
    """Squared distances (U, N) -> slope, and slope times threshold, of Eq. 9, for distances as they are."""
    d = tl.where(valid, d, float("inf"))
    exists = tl.max(valid.to(tl.int32), 1) > 0  # (U,)
    z = tl.min(d, 1)
    nearest = tl.argmin(d, 1)[:, None] == tl.arange(0, d.shape[1])[None, :]
    second = tl.min(tl.where(nearest, float("inf"), d), 1)
    some = exists & (way > 1)  # one class has no second-nearest
    scale = tl.sum(tl.where(exists, z, 0), 0) / unlabeled
    scale = tl.where(scale > 0, scale, 1)
    z = tl.where(exists, tl.minimum(z / scale, LARGEST), 0)
    second = tl.where(some, tl.minimum(second / scale, LARGEST), 0)
    anchor = tl.where(some, ANCHOR, 0.0)
    anchors = tl.sum(anchor, 0)
    count = unlabeled + tl.sum(some.to(tl.float32), 0)
    middle = (tl.sum(z, 0) + tl.sum(second, 0)) / count
    member = tl.where(exists & (z <= middle + SMALLEST), 1.0, 0.0)
    slope, product = middle * 0, middle * 0
    for _ in range(ITERATIONS):
        stranger = tl.where(exists, 1 - member, 0)
        members, strangers = tl.sum(member, 0), tl.sum(stranger, 0) + anchors
        near = tl.sum(member * z, 0) / tl.maximum(members, SMALLEST)
        spread = tl.sum(member * (z - near) * (z - near), 0)
        far = tl.sum(stranger * z + anchor * second, 0) / tl.maximum(strangers, SMALLEST)
        spread += tl.sum(stranger * (z - far) * (z - far), 0)
        spread += tl.sum(anchor * (second - far) * (second - far), 0)
        far = tl.maximum(near, far)
        variance = tl.maximum(spread / (members + strangers), SMALLEST)
        share = tl.minimum(tl.maximum(members / unlabeled, SMALLEST), 1 - SMALLEST)
        slope = (far - near) / variance
        product = tl.log(share / (1 - share)) + (far + near) / 2 * slope
        member = tl.where(exists, tl.sigmoid(product - slope * z), 0)
    return slope / scale, product
