"""`--encoder hf:OWNER/NAME`: ONNX encoders of the Hugging Face hub, downloaded once, and only when named.

Of a repository these are read: the graph of images, `preprocessor_config.json`, and for names of classes
the graph of texts and its tokenizer. Nothing in it is run as code.
Letters: N names, T tokens, D features.
"""

import errno
import hashlib
import importlib
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from semishot.errors import InputError, needing_extra, reason_of
from semishot.sorter.encoders.image_encoder import Features, ImageEncoder, open_session
from semishot.sorter.encoders.names import HUB, SHORT, OnnxOptions
from semishot.sorter.encoders.onnx_file import POOLED, open_onnx, read_onnx
from semishot.system.files import read_json, reading

NAME = re.compile(r"\w[\w.-]*/\w[\w.-]*(@\w[\w./-]*)?")
IMAGES, TEXTS = ("vision_model.onnx", "model.onnx"), ("text_model.onnx",)
PREPARING, TOKENIZER = "preprocessor_config.json", "tokenizer.json"
TOKENIZER_SETTINGS = "tokenizer_config.json"
STEPS = {"do_resize", "do_center_crop", "do_rescale", "do_normalize", "do_convert_rgb"}
"""Of preparing an image: what a file says of another step must be false."""
FILTERS = {2: True, 3: False}
"""Pillow's numbers of filters: whether it is the bilinear one."""
NO_CROP = 384
"""From this size on, `crop_pct` does not apply."""
PROBLEMS = {
    "GatedRepoError": "asks you to accept its terms: do so on its page, and set HF_TOKEN",
    "RepositoryNotFoundError": "is no repository of the hub, or a private one",
    "RevisionNotFoundError": "has no such revision",
    "RemoteEntryNotFoundError": "has no {}",
}
"""What the package's errors mean."""
UNKNOWN = "its preprocessing is unknown"
PHRASE = "a photo of a {}"
"""What CLIP's authors ask with."""
LONGEST = 512
"""Tokens of a text."""


@dataclass(frozen=True)
class Repository:
    """A repository at a revision; what was downloaded before needs no network."""

    name: str
    revision: str

    def here(self, file: str) -> Path | None:
        """The place of a file in the hub's cache."""
        path = _package().try_to_load_from_cache(self.name, file, revision=self.revision)
        return Path(path) if isinstance(path, str) else None

    def file(self, name: str) -> Path:
        """Download a file, unless it is here."""
        if path := self.here(name):
            return path
        with _plainly(self.name, name):
            return Path(_package().hf_hub_download(self.name, name, revision=self.revision))

    def graph(self, names: Sequence[str]) -> Path | None:
        """The first of these graphs that it has, with the files of its weights beside it."""
        places = [f"{folder}{name}" for name in names for folder in ("onnx/", "")]
        if path := next(filter(None, map(self.here, places)), None):
            return path
        with _plainly(self.name):
            about = _package().HfApi().model_info(self.name, revision=self.revision)
        files = {file.rfilename for file in about.siblings}
        place = next((place for place in places if place in files), None)
        for part in files & {f"{place}_data", f"{place}.data"}:
            self.file(part)
        return self.file(place) if place else None  # last: it is here if all of it is


def open_hub(name: str, given: OnnxOptions) -> ImageEncoder:
    """`hf:OWNER/NAME`, `hf:OWNER/NAME@REVISION` or a short name; `given` comes before what it says itself."""
    full, license = SHORT.get(name, (name.removeprefix(HUB), "see there"))
    repository, config = find(full)
    path, shown = repository.graph(IMAGES), f"{HUB}{repository.name}"
    if path is None:
        raise InputError(f"{shown} has no {' or '.join(IMAGES)}")
    options = options_of(read_json(config), f"{shown}: {PREPARING}")
    chosen = {key: value for key, value in asdict(given).items() if value is not None}
    encoder = open_onnx(shown, path, replace(options, **chosen))
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return replace(
        encoder,
        notice=f"weights of https://huggingface.co/{repository.name}, revision {repository.revision}, "
        f"sha256 {digest}; license: {license}",
        embed_names=partial(embed_names, repository),
    )


def find(full: str) -> tuple[Repository, Path]:
    """OWNER/NAME or OWNER/NAME@REVISION -> this revision, and how it prepares images."""
    if not NAME.fullmatch(full):
        raise InputError(
            f"{HUB}{full} is not {HUB}OWNER/NAME, as in {HUB}{SHORT['dinov2-small'][0]}"
        )
    name, _, revision = full.partition("@")
    config = Repository(name, revision or "main").file(PREPARING)
    return Repository(name, config.parent.name), config  # the cache names folders by revisions


def _package() -> Any:
    """The extra `hub`."""
    os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
    with needing_extra("an encoder of the Hugging Face hub"):
        for part in ("constants", "errors", "utils"):
            importlib.import_module(f"huggingface_hub.{part}")
        hub = importlib.import_module("huggingface_hub")
    hub.utils.logging.set_verbosity_error()  # it would warn of each attempt
    return hub


@contextmanager
def _plainly(name: str, file: str = "") -> Iterator[None]:
    """One line for what the hub, the network and the name can do wrong."""
    hub, shown = _package(), f"{HUB}{name}"
    try:
        yield
    except Exception as error:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EACCES, errno.EROFS):
            raise
        known = [
            PROBLEMS[each.__name__] for each in type(error).__mro__ if each.__name__ in PROBLEMS
        ]
        if known:
            raise InputError(f"{shown} {known[0].format(file)}") from error
        raise InputError(
            f"cannot get {shown} from {hub.constants.ENDPOINT}, and it has not been downloaded before "
            f"({reason_of(error)})"
        ) from error


def options_of(config: Any, where: str) -> OnnxOptions:
    """What `preprocessor_config.json` says of size, crop, scale and filter; InputError for other steps."""
    with reading(where, UNKNOWN):
        odd = [key for key, on in config.items() if key.startswith("do_") and on]
        odd = sorted(set(odd) - STEPS)
        odd += [f"no {key}" for key in ("do_resize", "do_rescale") if not config.get(key, True)]
        if abs(config.get("rescale_factor", 1 / 255) * 255 - 1) > 0.01:
            odd.append("rescale_factor")
        if (filter := config.get("resample", 3)) not in FILTERS:
            odd.append(f"resample {filter}")
        if odd:
            raise InputError(f"{where}: {UNKNOWN} ({', '.join(odd)})")
        size, share = _side(config["size"]), float(config.get("crop_pct") or 1)
        if config.get("do_center_crop") and "crop_size" in config:
            seen = _side(config["crop_size"])
            size, share = seen, min(1.0, seen / size)
        elif size >= NO_CROP:
            share = 1.0
        scale = [[0], [1]]
        if config.get("do_normalize", True):
            scale = [config["image_mean"], config["image_std"]]
        mean, std = (tuple(map(float, each)) for each in scale)
        return OnnxOptions(size, mean, std, share, encoder_bilinear=FILTERS[filter])


def _side(size: Any) -> int:
    """The pixels of a side: 224, {"shortest_edge": 224} or {"height": 224, "width": 224}."""
    if isinstance(size, int):
        return size
    if "shortest_edge" in size:
        return int(size["shortest_edge"])
    if size["height"] != size["width"]:
        raise ValueError(f"{size['height']} x {size['width']} pixels, not a square")
    return int(size["height"])


def embed_names(repository: Repository, names: Sequence[str]) -> Features:
    """Names of classes -> (N, D), by the half of the encoder that takes texts."""
    path = repository.graph(TEXTS)
    if path is None:
        raise InputError(
            f"{HUB}{repository.name} has no {TEXTS[0]}: names need an encoder that was trained with "
            "texts, such as clip-b32 or siglip-base"
        )
    with needing_extra("names of classes"):
        tokenizers = importlib.import_module("tokenizers")
    session = open_session(read_onnx(path))
    settings = read_json(repository.file(TOKENIZER_SETTINGS))
    with reading(repository.file(TOKENIZER)):
        tokenizer = tokenizers.Tokenizer.from_file(str(repository.file(TOKENIZER)))
        length = min(int(settings["model_max_length"]), LONGEST)
        pad = settings["pad_token"]
        pad = pad["content"] if isinstance(pad, dict) else pad
        tokenizer.enable_truncation(length)
        tokenizer.enable_padding(length=length, pad_id=tokenizer.token_to_id(pad), pad_token=pad)
        texts = tokenizer.encode_batch([PHRASE.format(name) for name in names])
        outputs = [value.name for value in session.get_outputs()]
        wanted = [name for name in ("text_embeds", *POOLED) if name in outputs][:1] or outputs[:1]
        known = {"input_ids": "ids", "attention_mask": "attention_mask"}
        given = {
            each.name: np.array([getattr(text, known[each.name]) for text in texts], np.int64)
            for each in session.get_inputs()
        }
        features: Features = np.asarray(session.run(wanted, given)[0], np.float32)
        if features.ndim != 2:
            raise ValueError(f"its output {wanted[0]} has {features.ndim} axes, not 2")
        return features
