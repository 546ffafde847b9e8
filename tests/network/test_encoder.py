"""The fleet encoder equals separate ordinary networks, in everything it leaves behind."""

import pytest
import torch
from torch import nn

from semishot import refine
from semishot.data.episodes import EpisodeShape
from semishot.errors import InputError
from semishot.network.encoder import ConvEncoder
from semishot.prototypes import class_log_probs, class_prototypes, episode_loss
from semishot.training.config import Member, Recipe
from semishot.training.fleets import build_fleet

RUNS, FILTERS, SIDE = 3, 6, 28
SHAPE = EpisodeShape(way=3, shot=2, query=1, unlabeled=2, distractors=1)


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


def literal_loss(single: nn.Module, refiner: nn.Module | None, x: torch.Tensor) -> torch.Tensor:
    embedded = single(x.double() / 255)
    s, u = SHAPE.sizes[0], SHAPE.sizes[1]
    support, unlabeled, query = embedded[:s], embedded[s : s + u], embedded[s + u :]
    labels = torch.eye(3, dtype=torch.float64).repeat_interleave(2, 0)
    p = class_prototypes(support, labels)
    p = class_prototypes(
        torch.cat([support, unlabeled]), torch.cat([labels, refiner(unlabeled, p)])
    )
    return episode_loss(class_log_probs(query, p), torch.arange(3))


def test_after_several_adam_updates_a_mixed_fleet_equals_separate_training():
    """Different methods side by side, each the same as if it had been trained alone."""
    members = [
        Member("soft_kmeans", 4),
        Member("masked_soft_kmeans", 0),
        Member("distractor_cluster", 1),
    ]
    recipe = Recipe(filters=FILTERS, init_std=0.3)
    fleet = build_fleet(members, recipe, 1).double()
    singles = [ordinary(fleet.encoder, run) for run in range(RUNS)]
    alone = [build_fleet([member], recipe, 1).double().refiner for member in members]
    refiners = [refine.build(member.model).double() for member in members]
    for refiner, source in zip(refiners, alone, strict=True):
        for parameter, value in zip(refiner.parameters(), source.parameters(), strict=True):
            parameter.data = value.data[0].clone()
    fleet_adam = torch.optim.Adam(fleet.parameters(), lr=1e-3)
    own = [[*s.parameters(), *r.parameters()] for s, r in zip(singles, refiners, strict=True)]
    adams = [torch.optim.Adam(parameters, lr=1e-3) for parameters in own]
    for _ in range(4):
        x = pixels(batch=SHAPE.images)
        fleet_adam.zero_grad()
        fleet(x, SHAPE).sum().backward()
        fleet_adam.step()
        for run in range(RUNS):
            adams[run].zero_grad()
            literal_loss(singles[run], refiners[run], x[run]).backward()
            adams[run].step()
    for run, (single, refiner) in enumerate(zip(singles, refiners, strict=True)):
        for block in range(4):
            assert torch.allclose(
                fleet.encoder.weights[block][run], single[4 * block].weight, atol=1e-7
            )
        in_fleet = fleet.refiner.refiners[run].parameters()
        for parameter, expected in zip(in_fleet, refiner.parameters(), strict=True):
            assert torch.allclose(parameter[0], expected, atol=1e-7)


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
