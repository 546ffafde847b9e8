"""Each crash, bomb or hang that `make fuzz` or a look for it has found, once more."""

import hashlib
import io
import json
import os
import pickle
import zipfile
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from semishot.data.episodes import EpisodeShape
from semishot.data.pool import open_pool, save_pool
from semishot.datasets import tiered_imagenet
from semishot.errors import InputError
from semishot.estimator.classifier import PrototypeClassifier
from semishot.report import results_page as results
from semishot.report.page import write_report
from semishot.sorter.embedding import embed, in_this_process
from semishot.sorter.embedding_cache import EmbeddingCache
from semishot.sorter.encoders.image_encoder import load_encoder, open_encoder
from semishot.sorter.feature_files import read_features, read_labels
from semishot.sorter.listing import Item
from semishot.system import tensor_files
from semishot.training import checkpoints
from semishot.training.config import FleetConfig, Member, Recipe, read_config
from semishot.training.fleet_training import begin_or_resume
from semishot.training.fleets import build_fleet, load_model, save_model
from semishot.training.log import cut_log
from semishot.training.records import records_so_far
from semishot.training.result_files import read_records
from support.commands import refusal
from support.records import record

CPU = torch.device("cpu")
DEEP = "[" * 100_000
CONFIG = FleetConfig(
    "glyphs",
    "0",
    "ren2018",
    Recipe(updates=2, filters=2),
    EpisodeShape(way=2),
    (Member("soft_kmeans", 0),),
)


def npy(header: str) -> bytes:
    text = header.encode().ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + bytes(64)


# .npy


@pytest.mark.parametrize(
    "header",
    [
        "{'descr': '<f4', 'fortran_order': False, 'shape': (4, ",
        "{'descr': '<f4', 'fortran_order': False, 'shape': None, }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2.0, 2), }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (9223372036854775807, 4), }",
        "{'descr': '|O', 'fortran_order': False, 'shape': (2, 2), }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (-1, 4), }",
    ],
)
def test_a_header_of_an_array_may_say_anything(header, tmp_path, tiny_root):
    path = tmp_path / "images.npy"
    path.write_bytes(npy(header))
    with pytest.raises(
        InputError,
        match="cannot read .*images.npy .*; it must be a .npy file",
    ):
        read_features(path)
    (tmp_path / "pool.json").write_bytes((tiny_root / "glyphs" / "pool.json").read_bytes())
    with pytest.raises(InputError, match="damaged image pool in .*prepare it again"):
        open_pool(tmp_path)


def test_labels_of_impossible_characters_are_no_text(tmp_path):
    array = np.array(["ab"])
    array.view(np.uint32)[0] = 2**31
    np.save(tmp_path / "labels.npy", array)
    with pytest.raises(InputError, match="holds strings that are not text"):
        read_labels(tmp_path / "labels.npy", 1)


def test_an_array_that_claims_more_images_than_there_are_is_refused_at_once(tmp_path):
    """It took all memory: a place was made for each image it claims."""
    with zipfile.ZipFile(tmp_path / "train_images.npz", "w") as opened:
        shape = "(999999999999, 84, 84, 3)"
        said = f"{{'descr': '|u1', 'fortran_order': False, 'shape': {shape}, }}"
        opened.writestr("images.npy", npy(said))
    with pytest.raises(InputError, match="is too short for its 999,999,999,999 images"):
        tiered_imagenet._images(tmp_path, "train")


# JSON


def test_json_of_any_depth_and_bytes_that_are_no_text_are_one_line(tmp_path):
    for text in (DEEP.encode(), b"\xff\xfe", b"1" * 5000):
        for name in ("config.json", "encoder.json", "result.json", "pool.json"):
            (tmp_path / name).write_bytes(text)
        np.save(tmp_path / "images.npy", np.zeros((1, 1, 28, 28), np.uint8))
        for read in (
            lambda: read_config(tmp_path / "config.json"),
            lambda: load_encoder(tmp_path),
            lambda: records_so_far(tmp_path / "result.json"),
            lambda: read_records(tmp_path / "result.json"),
            lambda: open_pool(tmp_path),
            lambda: write_report(tmp_path / "result.json", tmp_path / "page.html"),
        ):
            with pytest.raises(InputError):
                read()
    assert not (tmp_path / "page.html").exists()


@pytest.mark.parametrize(
    ("part", "field", "value"),
    [
        ("recipe", "filters", "many"),
        ("recipe", "filters", 10**30),
        ("recipe", "learning_rate", float("nan")),
        ("recipe", "precision", "int3"),
        ("recipe", "steps", 10**12),
        ("recipe", "halvings", ["a"]),
        ("shape", "way", 2.5),
        ("shape", "way", True),
        ("shape", "within_group", 3),
        ("members", "split_seed", [0]),
        ("members", "split_seed", -1),
        ("members", "options", {"mask_power": [1]}),
        ("members", "model", None),
        (None, "dataset", 5),
    ],
)
def test_fields_of_a_configuration_are_what_they_should_be(part, field, value):
    said = json.loads(CONFIG.to_json())
    place = said if part is None else said[part][0] if part == "members" else said[part]
    place[field] = value
    with pytest.raises(InputError, match="not a configuration of this version"):
        FleetConfig.from_json(json.dumps(said))


@pytest.mark.parametrize("change", [{"split": "all"}, {"start": -5}, {"count": "3"}, {"name": 3}])
def test_classes_of_a_pool_are_what_they_should_be(change, tiny_pool, tmp_path):
    save_pool(tmp_path / "it", "it", tiny_pool.images[:20], [tiny_pool.classes[0]], {})
    said = json.loads((tmp_path / "it/pool.json").read_text())
    odd = replace(tiny_pool.classes[0], digest=said["classes"][0][5], **change)
    said["classes"] = [[odd.name, odd.group, odd.split, odd.start, odd.count, odd.digest]]
    said["fingerprint"] = replace(tiny_pool, classes=(odd,)).fingerprint
    (tmp_path / "it/pool.json").write_text(json.dumps(said))
    with pytest.raises(InputError, match="damaged image pool"):
        open_pool(tmp_path / "it")


@pytest.mark.parametrize("content", [{"0": 1}, [], [3], [{"dataset": "x"}], "text", 5, [[]]])
def test_published_results_of_any_shape_are_one_line(content, tmp_path):
    path = tmp_path / "results" / "omniglot" / "table1-ren2018.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(content))
    for use in (
        lambda: results.write_results(tmp_path / "results", tmp_path / "page.md"),
        lambda: write_report(tmp_path / "results", tmp_path / "page.html"),
    ):
        with pytest.raises(InputError):
            use()
    assert [p.name for p in tmp_path.iterdir()] == ["results"]


def test_a_damaged_record_of_a_run_is_named_with_what_to_do(tmp_path):
    (tmp_path / "result.json").write_text('[{"model": 3}]')
    with pytest.raises(InputError, match="dataset is missing; delete it to measure again"):
        records_so_far(tmp_path / "result.json")


@pytest.mark.parametrize("line", ["3", '"text"', "[]", "{}", '{"step": "x", "loss": []}', DEEP])
def test_a_log_of_any_content_is_one_line(line, tmp_path):
    (tmp_path / "log.jsonl").write_text(line + "\n")
    with pytest.raises(
        InputError, match="cannot read .*log.jsonl .*is damaged or of another version"
    ):
        cut_log(tmp_path, 5)


# Models


@pytest.fixture(scope="module")
def classifier_file(tmp_path_factory):
    rows = np.random.default_rng(0).normal(size=(9, 4))
    path = tmp_path_factory.mktemp("saved") / "it.safetensors"
    PrototypeClassifier().fit(rows, np.array(["a", "b", -1] * 3, object)).save(path)
    return path


def changed(classifier: Path, folder: Path, change: dict[str, object]) -> Path:
    """A saved classifier with other fields."""
    tensors, metadata = tensor_files.read_tensors(classifier)
    ((key, text),) = metadata.items()
    about = json.dumps({**json.loads(text), **change})
    tensor_files.write_tensors(folder / "it.safetensors", tensors, {key: about})
    return folder / "it.safetensors"


def test_a_number_of_any_size_in_a_saved_classifier_is_a_float(classifier_file, tmp_path):
    """A whole number of thirty digits was multiplied with a tensor."""
    about = {"graph": {"graph_weight": 10**30, "pull": 10**30, "share": 0.5}}
    loaded = PrototypeClassifier.load(changed(classifier_file, tmp_path, about))
    assert np.isfinite(loaded.predict_proba(np.zeros((2, 4)))).all()


def test_the_size_of_a_label_is_not_believed(classifier_file, tmp_path):
    """Two labels of 500 million characters each took 4 GB."""
    path = changed(classifier_file, tmp_path, {"classes_dtype": "<U500000000"})
    assert PrototypeClassifier.load(path).classes_.nbytes < 100


@pytest.mark.parametrize("change", [{"encoder.scales.0": torch.full((1, 2), torch.nan)}, {}])
def test_a_model_must_bring_the_weights_it_claims_and_they_must_be_finite(change, tmp_path):
    """A million filters on paper were built before they were compared."""
    model = build_fleet(CONFIG.members, CONFIG.recipe, 1)
    claimed = CONFIG if change else replace(CONFIG, recipe=Recipe(updates=2, filters=1_000_000))
    tensors = {**model.state_dict(), **change}
    path = tmp_path / "model.safetensors"
    tensor_files.write_tensors(path, tensors, {"config": claimed.to_json()})
    with pytest.raises(InputError, match="not finite|are not of 1 runs with 1000000 filters"):
        load_model(path, CPU)


@pytest.mark.parametrize("shape", [(), (0, 10**12), (2, 4), (1, 7), (1, 4, 1)])
def test_the_center_of_a_sphere_must_be_of_the_embeddings(shape, tmp_path):
    """As large as it claims to be, a center was built before it was compared."""
    config = replace(CONFIG, recipe=replace(CONFIG.recipe, sphere=10.0))
    model = build_fleet(config.members, config.recipe, 1, 4)
    tensors = {**model.state_dict(), "sphere.center": torch.zeros(shape)}
    tensor_files.write_tensors(tmp_path / "it.safetensors", tensors, {"config": config.to_json()})
    with pytest.raises(
        InputError, match=r"its sphere.center \(.*\) is not of 1 runs with 2 filters"
    ):
        load_model(tmp_path / "it.safetensors", CPU)


def test_metadata_that_are_no_texts_are_damage(tmp_path):
    save_model(
        tmp_path / "model.safetensors", CONFIG, build_fleet(CONFIG.members, CONFIG.recipe, 1)
    )
    header, data = tensor_files._parts((tmp_path / "model.safetensors").read_bytes())
    for odd in (None, {"config": 3}, [1]):
        text = json.dumps({**header, "__metadata__": odd}).encode()
        content = len(text).to_bytes(8, "little") + text + data
        (tmp_path / "model.safetensors").write_bytes(content)
        with pytest.raises(InputError, match="is damaged or of another version"):
            load_model(tmp_path, CPU)


def test_a_checkpoint_that_unpacks_to_more_than_it_is_is_no_checkpoint(tmp_path, capsys):
    """With the right checksum: `torch.load` would unpack a gigabyte out of a megabyte."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as opened:
        opened.writestr("archive/data.pkl", bytes(2**24))
    content = file.getvalue()
    (tmp_path / "state.pt").write_bytes(content + hashlib.sha256(content).digest())
    assert checkpoints.last_good_state(tmp_path, CPU) is None
    assert "it is not a checkpoint of this version" in capsys.readouterr().err


@pytest.mark.parametrize(
    "change", [{"step": "x"}, {"step": -1}, {"step": 99}, {"optimizer": 3}, {"model": []}]
)
def test_a_checkpoint_of_any_content_is_one_line(change, tiny_pool, tmp_path):
    model, optimizer, _ = begin_or_resume(CONFIG, tiny_pool, tmp_path, CPU)
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": 1, **change}
    checkpoints.save_state(tmp_path, state)
    with pytest.raises(InputError, match="is not of this fleet"):
        begin_or_resume(CONFIG, tiny_pool, tmp_path, CPU)


def test_a_pipe_in_the_place_of_the_last_but_one_checkpoint_stays(tmp_path):
    """It was replaced."""
    os.mkfifo(tmp_path / "state.before.pt")
    with pytest.raises(InputError, match=r"state\.before\.pt is not a regular file"):
        checkpoints.save_state(tmp_path, {"step": 1})
    assert [p.name for p in tmp_path.iterdir()] == ["state.before.pt"]


@pytest.mark.parametrize("content", [b"{", b"\xff\xfe"])
def test_a_report_names_the_configuration_it_cannot_read(content, tmp_path):
    """ "it is not a configuration": which? And bytes that are no text ended in a traceback."""
    run = tmp_path / "runs" / "glyphs" / "demo" / "fleet"
    run.mkdir(parents=True)
    (run / "result.json").write_text(json.dumps([record()]))
    (run / "model.safetensors").write_bytes(b"")
    (run / "log.jsonl").write_text("")
    (run / "config.json").write_bytes(content)
    with pytest.raises(InputError, match=r"fleet/config\.json"):
        write_report([tmp_path / "runs"], tmp_path / "report.html", None, 1)


def test_features_that_are_no_numbers_are_skipped_not_learned_from(tmp_path):
    """Of a cache from elsewhere; scikit-learn ended in a traceback."""
    encoder = open_encoder("omniglot")
    path = tmp_path / "it.pgm"
    path.write_bytes(b"P5 30 30 255\n" + bytes(900))
    kept = EmbeddingCache(tmp_path / "cache", encoder.identity, encoder.features)
    digest = hashlib.sha256(path.read_bytes()).digest()
    kept.add({digest: np.full(encoder.features, np.nan, np.float32)})
    rows = embed(
        [Item("it", "a", path)], encoder, kept, tmp_path / "rows.npy", partial(in_this_process, CPU)
    )
    assert rows.items == []
    assert rows.skipped[0].reason == "the encoder gives features that are not finite"


# Pickles and archives


def test_text_in_a_pickle_that_is_no_text_of_bytes_is_one_line(tmp_path):
    (tmp_path / "train_images_png.pkl").write_bytes(pickle.dumps(["\x89PNG\r\n\x1a\n中"], 2))
    (source,) = tiered_imagenet._images(tmp_path, "train")
    with pytest.raises(InputError, match="is not in latin1"):
        tiered_imagenet.read(source)


# Commands


def test_odd_words_on_the_command_line_are_one_line(tiny_root, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "undo.json").write_text("{}")
    (tmp_path / "results/x").mkdir(parents=True)
    (tmp_path / "results/x/y.json").write_text("{}")
    for words in (
        ["report", "x" * 300],
        ["results", "--folder", "results", "--out", ""],
        ["undo", "undo.json/x"],
        ["train", "--filters", 10**8, "--device", "cpu", "--data-root", tiny_root],
    ):
        assert refusal(capsys, *words)
