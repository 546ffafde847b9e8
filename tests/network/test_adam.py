"""Adam without the import of PyTorch's compiler: the same numbers, sooner."""

import subprocess
import sys

import torch

from semishot.network.adam import Adam


def test_it_steps_as_pytorchs_does_bit_by_bit():
    found = []
    for kind in (torch.optim.Adam, Adam):
        generator = torch.Generator().manual_seed(3)
        parameters = [torch.nn.Parameter(torch.ones(n)) for n in (5, 2)]
        groups = [
            {"params": parameters[:1], "weight_decay": 0.1},
            {"params": parameters[1:], "weight_decay": 0.0},
        ]
        optimizer = kind(groups, lr=0.1)
        for step in range(6):
            optimizer.zero_grad()
            for parameter in parameters:
                noise = torch.randn(parameter.shape, generator=generator)
                (parameter * noise).sum().backward()
            optimizer.step()
            if step == 3:  # as after a resume
                optimizer.load_state_dict(optimizer.state_dict())
        found.append([p.detach() for p in parameters])
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))


def test_training_does_not_load_the_compiler(tiny_root, tmp_path):
    arguments = ["train", "--dataset", "glyphs", "--preset", "demo", "--filters", "4"]
    arguments += ["--data-root", str(tiny_root), "--runs", str(tmp_path), "--device", "cpu"]
    arguments += ["--updates", "2", "--way", "3", "--split-seeds", "0"]
    code = (
        "import sys; from semishot.commands.main import main; main(sys.argv[1:]); "
        "sys.exit('torch._dynamo' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code, *arguments], check=True, capture_output=True)
