"""What runs an encoder: onnxruntime on a CPU, for the networks that have a graph; otherwise torch.

The two differ by rounding alone, some 1e-5 where features go up to 5. Each is opened when the first image
is to be encoded: a pile whose features are cached needs neither. Letters: B images, D features.
"""

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from semishot.errors import InputError, reason_of
from semishot.sorter.encoders.image_encoder import ImageEncoder
from semishot.sorter.encoders.onnx_files import cpu_session, imported

if TYPE_CHECKING:
    import torch

Pixels = NDArray[np.uint8]
Row = NDArray[np.float32]

BATCH, BATCH_ON_GPU = 4, 64
"""Of torch. On a CPU small batches stay in the cache: batches of 4 take half the time of batches of 32."""
SWITCH = "SEMISHOT_RUNTIME"
"""The environment variable that names the runtime for a CPU: onnxruntime or torch."""
ONNXRUNTIME, TORCH = "onnxruntime", "torch"
SLOWER = "torch encodes, several times slower"


class Batches:
    """torch: images one by one -> features in batches of a fixed size, as other sizes round differently.

    So, on a CPU, an image has the same features in any batch and at any position.
    """

    def __init__(self, encoder: ImageEncoder, device: "torch.device") -> None:
        import torch

        self.module, self.device = encoder.module.to(device), device
        self.size = BATCH if device.type == "cpu" else BATCH_ON_GPU
        self.waiting: dict[bytes, Pixels] = {}
        self.name = str(getattr(encoder.module, "runtime", f"{TORCH} {torch.__version__}"))
        self.about = f"{self.name} on {device}"

    def take(self, digest: bytes, pixels: Pixels) -> dict[bytes, Row]:
        """The features of a full batch, once there is one."""
        self.waiting[digest] = pixels
        return self.rest() if len(self.waiting) == self.size else {}

    def rest(self) -> dict[bytes, Row]:
        import torch

        if not self.waiting:
            return {}
        pixels = list(self.waiting.values())
        filled = np.stack(pixels + pixels[-1:] * (self.size - len(pixels)))
        with torch.inference_mode():
            rows = self.module(torch.from_numpy(filled).to(self.device)).float().cpu().numpy()
        found = dict(zip(self.waiting, rows, strict=False))
        self.waiting.clear()
        return found


class OneByOne:
    """onnxruntime: each image alone on one core, and as many images beside each other as there are threads.

    A core takes no longer for it than in a batch, and cores need not wait for each other. The features of
    an image are the same bits whatever is encoded beside it, and on however many cores.
    """

    def __init__(self, encoder: ImageEncoder) -> None:
        from semishot.sorter.encoders.photo_graphs import FEATURES, PIXELS, graph_of

        onnx, runtime = (imported(name, "encoding") for name in ("onnx", ONNXRUNTIME))
        shape = encoder.height, encoder.width, encoder.features
        graph = graph_of(onnx, encoder.module, *shape)
        self.session = cpu_session(
            graph, 1, "encoding"
        )  # the thread that asks is the one that works
        self.takes, self.gives = PIXELS, FEATURES
        self.name = f"{ONNXRUNTIME} {runtime.__version__}"
        self.about = f"{self.name} on the CPU"

    def features(self, pixels: Pixels) -> Row:
        """(H, W, C) -> (D,), in any thread."""
        found: Row = self.session.run([self.gives], {self.takes: pixels[None]})[0][0]
        return found

    def take(self, digest: bytes, pixels: Pixels) -> dict[bytes, Row]:
        return {digest: self.features(pixels)}

    def rest(self) -> dict[bytes, Row]:
        return {}


Runtime = Batches | OneByOne


class Opening:
    """A runtime that is opened when it is first asked for; for one thread, others may look if it is open.

    `tell` gets a line if it is not the runtime that it would be elsewhere.
    """

    def __init__(
        self, begin: Callable[[], tuple[Runtime, str]], tell: Callable[[str], None]
    ) -> None:
        self.begin, self.tell = begin, tell
        self.opened: Runtime | None = None

    def __call__(self) -> Runtime:
        if self.opened is None:
            self.opened, problem = self.begin()
            if problem:
                self.tell(f"encoding by {self.opened.about}: {problem}")
        return self.opened


def wanted_runtime() -> str:
    """What the environment says; empty if it says nothing."""
    wanted = os.environ.get(SWITCH, "")
    if wanted not in ("", ONNXRUNTIME, TORCH):
        raise InputError(f"{SWITCH} must be {ONNXRUNTIME} or {TORCH}, not {wanted!r:.40}")
    return wanted


def open_runtime(encoder: ImageEncoder, device: "torch.device") -> tuple[Runtime, str]:
    """The fastest runtime that is there; and why it is not the one that it would be elsewhere, or nothing."""
    from semishot.sorter.encoders.photo_graphs import has_graph

    wanted = wanted_runtime()
    if device.type != "cpu" or not has_graph(encoder.module):
        return Batches(encoder, device), ""
    problem = f"{SWITCH} says so"
    if wanted != TORCH:
        try:
            return OneByOne(encoder), ""
        except InputError:
            problem = (
                f"{ONNXRUNTIME} is not installed, so {SLOWER} (pip install 'semishot[photos]')"
            )
        except Exception as error:  # its own types; on this machine it does not work
            problem = f"{ONNXRUNTIME} cannot be used ({reason_of(error)}), so {SLOWER}"
        if wanted == ONNXRUNTIME:
            raise InputError(f"{SWITCH} is {ONNXRUNTIME}, but {problem.partition(', so')[0]}")
    return Batches(encoder, device), problem
