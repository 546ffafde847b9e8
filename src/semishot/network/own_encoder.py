"""An encoder of one's own, `train --encoder MODULE:CLASS`: R copies of a network, trained side by side.

The contract: CLASS(channels) is a module that maps pixels from 0 to 1, (B, C, H, W), to features (B, D). It
may be any network whose operations `torch.func.vmap` knows, batch norm among them; nothing in it need know
of runs, and frozen parameters stay as they are. `examples/resnet12.py` is one.
Letters: R runs, B images per run, C channels, H x W pixels, D features.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn.parameter import is_lazy

from semishot import refine
from semishot.errors import InputError, reason_of

__all__ = ["OwnEncoder"]


class OwnEncoder(nn.Module):
    """`network` is the user's module; every parameter and buffer in it carries a leading axis R."""

    fused = False

    def __init__(self, name: str, channels: int, runs: int = 1) -> None:
        super().__init__()
        self.name, self.channels, self.runs = name, channels, runs
        self.network = self._built()
        if any(map(is_lazy, self.network.parameters())):
            raise InputError(f"the encoder {name} has lazy layers: their sizes must be given")
        for module in self.network.modules():
            for key, parameter in module.named_parameters(recurse=False):
                copies = nn.Parameter(self._copies(parameter), parameter.requires_grad)
                module._parameters[key] = copies
            for key, buffer in module.named_buffers(recurse=False):
                module._buffers[key] = self._copies(buffer)
        if not any(weight.requires_grad for weight in self.weights):
            raise InputError(f"the encoder {name} has no weights to train")

    def _copies(self, tensor: Tensor) -> Tensor:
        return tensor.detach().repeat(self.runs, *(1,) * tensor.ndim)

    def _built(self) -> nn.Module:
        try:
            return refine.class_of(self.name)(self.channels)
        except InputError:
            raise
        except Exception as error:
            raise InputError(
                f"the encoder {self.name} cannot be built as CLASS(channels={self.channels}) "
                f"({type(error).__name__}: {reason_of(error)})"
            ) from error

    @property
    def weights(self) -> list[nn.Parameter]:
        """What L2 acts on: not biases, nor the scales of norms."""
        return [parameter for parameter in self.parameters() if parameter.ndim > 2]

    @torch.no_grad()
    def reset_run(self, run: int, generator: torch.Generator) -> None:
        """Draw one run: the constructor of the user's module draws from this generator."""
        with torch.random.fork_rng(devices=[]):
            torch.set_rng_state(generator.get_state())
            drawn = self._built().state_dict()
            generator.set_state(torch.get_rng_state())
        for name, tensor in self.network.state_dict().items():
            tensor[run] = drawn[name]

    def forward(self, images: Tensor) -> Tensor:
        """uint8 (R, B, C, H, W) -> (R, B, D)."""
        pixels = images.to(self.weights[0].dtype) / 255
        parameters, buffers = self.network.named_parameters(), self.network.named_buffers()
        of_all_runs = vmap(self._one_run, randomness="different")
        features: Tensor = of_all_runs(dict(parameters), dict(buffers), pixels)
        return features

    def _one_run(
        self, parameters: dict[str, Tensor], buffers: dict[str, Tensor], pixels: Tensor
    ) -> Tensor:
        features: Tensor = functional_call(self.network, (parameters, buffers), (pixels,))
        return features

    def of_run(self, run: int) -> nn.Module:
        """The user's module with the weights of one run."""
        network = self._built()
        network.load_state_dict({k: t[run] for k, t in self.network.state_dict().items()})
        return network.to(self.weights[0].device).eval()

    def like(self, runs: int) -> "OwnEncoder":
        """The same network with other weights, for another number of runs."""
        return OwnEncoder(self.name, self.channels, runs)

    @torch.inference_mode()
    def features(self, size: Sequence[int]) -> int:
        """D, for images of H x W pixels; an error if the network does not map images to features."""
        training, shape = self.training, (self.runs, 2, self.channels, *size)
        try:
            made = self.eval()(torch.zeros(shape, dtype=torch.uint8, device=self.weights[0].device))
        except Exception as error:
            raise InputError(
                f"the encoder {self.name} fails on images {shape[1:]} "
                f"({type(error).__name__}: {reason_of(error)})"
            ) from error
        self.train(training)
        if made.shape[:2] != shape[:2] or made.ndim != 3:
            raise InputError(
                f"the encoder {self.name} returned {tuple(made.shape[1:])} for 2 images, not (2, D)"
            )
        return int(made.shape[-1])
