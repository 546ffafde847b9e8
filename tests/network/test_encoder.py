"""The fleet encoder equals separate ordinary networks, in everything it leaves behind."""

import pytest
import torch
from torch import nn

from semishot.errors import InputError
from semishot.network.encoder import ConvEncoder

RUNS, FILTERS, SIDE = 3, 6, 28


def pixels(runs: int = RUNS, batch: int = 7, channels: int = 1, side: int = SIDE) -> torch.Tensor:
    generator = torch.Generator().manual_seed(5)
    return torch.randint(0, 256, (runs, batch, channels, side, side), generator=generator).byte()


def encoder(runs: int = RUNS, channels: int = 1) -> ConvEncoder:
    made = ConvEncoder(channels, FILTERS, runs, init_std=0.3).double()
    generator = torch.Generator().manual_seed(6)
    for parameter in [*made.scales, *made.shifts]:  # negative scales too: pooling must not care
        parameter.data = torch.randn(parameter.shape, generator=generator).double()
    return made


def ordinary(fleet: ConvEncoder, run: int, bias: float = 0.0) -> nn.Sequential:
    """Run `run` as the network of the paper's code: Conv2d with bias, BatchNorm2d, ReLU, MaxPool2d."""
    layers = []
    for block, weight in enumerate(fleet.weights):
        conv = nn.Conv2d(weight.shape[2], FILTERS, 3, padding=1)
        norm = nn.BatchNorm2d(FILTERS)
        conv.weight.data = weight.data[run].clone()
        conv.bias.data.fill_(bias)
        norm.weight.data = fleet.scales[block].data[run].clone()
        norm.bias.data = fleet.shifts[block].data[run].clone()
        layers += [conv, norm, nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.Flatten()).double()


@pytest.mark.parametrize(("channels", "side"), [(1, 28), (3, 36)])
@pytest.mark.parametrize("bias", [0.0, 0.7])
def test_a_fleet_equals_separate_networks_with_or_without_a_bias(channels, side, bias):
    fleet, x = encoder(channels=channels), pixels(channels=channels, side=side)
    out = fleet(x)
    out.square().sum().backward()
    for run in range(RUNS):
        single = ordinary(fleet, run, bias)
        alone = single(x[run].double() / 255)
        alone.square().sum().backward()
        assert torch.allclose(out[run], alone, atol=1e-9)
        for block in range(4):
            conv, norm = single[4 * block], single[4 * block + 1]
            assert torch.allclose(fleet.weights[block].grad[run], conv.weight.grad, atol=1e-7)
            assert torch.allclose(fleet.scales[block].grad[run], norm.weight.grad, atol=1e-7)
            assert torch.allclose(fleet.shifts[block].grad[run], norm.bias.grad, atol=1e-7)
            mean, var = fleet.moving_averages(block)
            # torch keeps the unbiased variance, and its mean holds a tenth of the bias
            assert torch.allclose(mean[run], norm.running_mean - 0.1 * bias, atol=1e-9)
            assert torch.allclose(var[run], norm.running_var, rtol=1e-2)


def test_evaluation_uses_moving_averages_and_not_the_batch():
    fleet, x = encoder(), pixels()
    fleet(x)
    fleet.eval()
    together = fleet(x)
    assert torch.allclose(together[:, :2], fleet(x[:, :2]))
    for run in range(RUNS):
        single = ordinary(fleet, run)
        for block in range(4):
            mean, var = fleet.moving_averages(block)
            single[4 * block + 1].running_mean.copy_(mean[run])
            single[4 * block + 1].running_var.copy_(var[run])
        assert torch.allclose(together[run], single.eval()(x[run].double() / 255), atol=1e-9)


def test_embedding_sizes_are_the_papers():
    assert ConvEncoder(1, 64)(pixels(1, 2)).shape == (1, 2, 64)
    assert ConvEncoder(3, 64)(pixels(1, 2, 3, 84)).shape == (1, 2, 1600)


def test_wrong_images_are_named():
    with pytest.raises(
        InputError, match=r"takes images \(3, B, 1, H, W\).*not \(2, 7, 1, 28, 28\)"
    ):
        encoder()(pixels(runs=2))
    with pytest.raises(InputError, match="at least 16 pixels"):
        encoder()(pixels(side=15))
