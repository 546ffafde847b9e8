"""A GPU on which the fused kernels cannot run."""

import torch

from semishot.training import update


def test_a_gpu_without_triton_trains_unfused_and_says_so(monkeypatch, capsys):
    monkeypatch.setattr(update, "find_spec", lambda name: None)
    assert not update.can_fuse(torch.device("cuda"), (28, 27), 48)
    said = capsys.readouterr().err
    assert "training in float32, slower: bf16 needs Triton" in said
    assert "(here 48)" in said
    assert "(here 28 x 27)" in said
    assert not update.can_fuse(torch.device("cpu"), (28, 28), 64)
    assert capsys.readouterr().err == ""
