"""ResNet-12, the usual larger network of few-shot papers, as an encoder of one's own.

    semishot train --encoder resnet12:ResNet12 --dataset glyphs --updates 200

in this folder, or with this file in the working folder. The contract: CLASS(channels) is a module that maps
pixels from 0 to 1, (B, C, H, W), to features (B, D). A copy is trained for each run, side by side, in
float32 and without the fused kernels. Letters: B images, C channels, H x W pixels, D features.
"""

from torch import Tensor, nn
from torch.nn import functional as F


class Block(nn.Module):
    """Three 3x3 convolutions with batch norm, a shortcut, and 2x2 max-pool."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        widths = [inputs, outputs, outputs]
        self.convolutions = nn.ModuleList(
            nn.Conv2d(width, outputs, 3, padding=1, bias=False) for width in widths
        )
        self.norms = nn.ModuleList(nn.BatchNorm2d(outputs) for _ in widths)
        self.shortcut = nn.Sequential(
            nn.Conv2d(inputs, outputs, 1, bias=False), nn.BatchNorm2d(outputs)
        )

    def forward(self, x: Tensor) -> Tensor:
        """(B, inputs, H, W) -> (B, outputs, H / 2, W / 2)"""
        y = x
        for index, (convolution, norm) in enumerate(
            zip(self.convolutions, self.norms, strict=True)
        ):
            y = norm(convolution(y))
            if index < 2:
                y = F.leaky_relu(y, 0.1)
        return F.max_pool2d(F.leaky_relu(y + self.shortcut(x), 0.1), 2)


class ResNet12(nn.Module):
    """Four blocks, then the mean over the image: D = 640."""

    def __init__(self, channels: int, widths: tuple[int, ...] = (64, 160, 320, 640)) -> None:
        super().__init__()
        self.blocks = nn.Sequential(
            *(Block(i, o) for i, o in zip((channels, *widths), widths, strict=False))
        )

    def forward(self, pixels: Tensor) -> Tensor:
        """(B, C, H, W) -> (B, D)"""
        features: Tensor = self.blocks(pixels).mean((-2, -1))
        return features
