"""A Hugging Face hub on this machine, with one small repository of each kind."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import import_module
from urllib.parse import unquote, urlsplit

import numpy as np

from semishot.sorter.encoders.graph import OnnxGraph, node

REVISION = "0123456789abcdef0123456789abcdef01234567"
SIDE, FEATURES = 16, 6
WORDS = ["red", "blue", "fox", "badger", "a", "photo", "of"]
CONFIG = {
    "do_resize": True,
    "size": {"shortest_edge": 20},
    "do_center_crop": True,
    "crop_size": {"height": SIDE, "width": SIDE},
    "do_rescale": True,
    "rescale_factor": 1 / 255,
    "do_normalize": True,
    "image_mean": [0.5, 0.4, 0.3],
    "image_std": [0.1, 0.2, 0.3],
    "resample": 2,
    "image_processor_type": "CLIPImageProcessor",
}


def image_graph(output: str = "image_embeds") -> bytes:
    """Means over pixels, and six sums of them: (B, 3, H, W) -> (B, 6)."""
    graph = OnnxGraph()
    pixels = graph.input("pixel_values", "float32", "batch", 3, "height", "width")
    weights = np.random.default_rng(0).normal(size=(3, FEATURES))
    features = node("ReduceMean", pixels, [2, 3], keepdims=0) @ weights
    graph.output(output, features, "float32", "batch", FEATURES)
    return graph.serialized()


def with_weights_outside(model: bytes) -> tuple[bytes, bytes]:
    """The same network, and its weights as a file `model.onnx_data`."""
    onnx = import_module("onnx")
    read, data = onnx.load_model_from_string(model), b""
    for tensor in read.graph.initializer:
        onnx.external_data_helper.set_external_data(
            tensor, "model.onnx_data", len(data), len(tensor.raw_data)
        )
        data += tensor.raw_data
        tensor.ClearField("raw_data")
    return read.SerializeToString(), data


def text_rows() -> np.ndarray:
    """One for each token, after those of unknown words and of padding: what is red or blue looks like it."""
    rows = np.random.default_rng(1).normal(size=(len(WORDS) + 2, FEATURES))
    weights = np.random.default_rng(0).normal(size=(3, FEATURES))
    for word, color in (("red", [1, 0, 0]), ("blue", [0, 0, 1])):
        scaled = (np.array(color) - CONFIG["image_mean"]) / CONFIG["image_std"]
        rows[2 + WORDS.index(word)] = scaled @ weights
    return rows.astype(np.float32)


def text_graph() -> bytes:
    """The mean of a row for each token that is not padding: (N, T) -> (N, 6)."""
    graph, given = OnnxGraph(), ("input_ids", "attention_mask")
    ids, mask = (graph.input(name, "int64", "batch", "tokens") for name in given)
    mask = node("Unsqueeze", node("Cast", mask, to=1), [-1])
    total = node("ReduceSum", node("Gather", text_rows(), ids) * mask, [1], keepdims=0)
    mean = total / node("ReduceSum", mask, [1], keepdims=0)
    graph.output("text_embeds", mean, "float32", "batch", FEATURES)
    return graph.serialized()


def tokenizer() -> bytes:
    tokenizers = import_module("tokenizers")
    vocabulary = {word: index for index, word in enumerate(["[UNK]", "[PAD]", *WORDS])}
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="[UNK]"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    made.add_special_tokens(["[UNK]", "[PAD]"])
    return made.to_str().encode()


def prepared(**changes: object) -> bytes:
    return json.dumps(CONFIG | changes).encode()


def repositories() -> dict[str, dict[str, bytes]]:
    clip = {
        "preprocessor_config.json": prepared(),
        "onnx/model.onnx": b"images and texts: not to be taken",
        "onnx/vision_model.onnx": image_graph(),
        "onnx/text_model.onnx": text_graph(),
        "tokenizer.json": tokenizer(),
        "tokenizer_config.json": b'{"model_max_length": 9, "pad_token": "[PAD]"}',
        "pytorch_model.bin": b"a pickle: not to be taken",
    }
    dino = {
        "preprocessor_config.json": prepared(size=SIDE, do_center_crop=False, resample=3),
        "onnx/model.onnx": image_graph("pooler_output"),
    }
    graph, data = with_weights_outside(dino["onnx/model.onnx"])
    return {
        "some/clip": clip,
        "some/large": dino | {"onnx/model.onnx": graph, "onnx/model.onnx_data": data},
        "some/dino": dino,
        "some/torch": {"preprocessor_config.json": prepared(), "model.safetensors": b"x"},
        "some/plain": {"onnx/model.onnx": image_graph()},
        "some/padded": dino | {"preprocessor_config.json": prepared(do_pad=True)},
        "some/box": dino | {"preprocessor_config.json": prepared(resample=4)},
        "some/wide": dino
        | {"preprocessor_config.json": prepared(crop_size=dict(height=8, width=9))},
    }


@contextmanager
def hub(asked: list[str]) -> Iterator[str]:
    """The address of a server of `repositories()`; it notes the files that are asked for."""
    held = repositories()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            pass

        def answer(self, status: int, body: bytes, **headers: str) -> None:
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(name.replace("_", "-"), value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def do_GET(self) -> None:
            parts = unquote(urlsplit(self.path).path).strip("/").split("/")
            is_api = parts[:2] == ["api", "models"]
            parts = parts[2:] if is_api else parts
            files = held.get("/".join(parts[:2]))
            if files is None:
                self.answer(404, b"", X_Error_Code="RepoNotFound", X_Error_Message="none")
            elif is_api:
                about = {"id": "/".join(parts[:2]), "sha": REVISION, "tags": [], "private": False}
                about |= {"siblings": [{"rfilename": name} for name in files]}
                self.answer(200, json.dumps(about).encode(), Content_Type="application/json")
            elif parts[3] not in ("main", REVISION):
                self.answer(404, b"", X_Error_Code="RevisionNotFound", X_Error_Message="none")
            elif (name := "/".join(parts[4:])) not in files:
                self.answer(404, b"", X_Error_Code="EntryNotFound", X_Error_Message="none")
            else:
                if self.command == "GET":
                    asked.append(f"{'/'.join(parts[:2])}: {name}")
                tag = f'"{sha256(files[name]).hexdigest()}"'
                self.answer(200, files[name], ETag=tag, X_Repo_Commit=REVISION)

        do_HEAD = do_GET  # noqa: N815

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
