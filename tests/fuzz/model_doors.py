"""The doors of models and results: safetensors, checkpoints, .npy, and every JSON that is read again."""

import atexit
import hashlib
import io
import json
import shutil
import tempfile
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from pathlib import Path

import numpy as np
import torch
from doors import Door
from mutations import odd_header, odd_json, odd_json_lines, odd_npy, odd_zip

from semishot.data.episodes import EpisodeShape
from semishot.data.pool import ImageClass, ImagePool, changed_classes, open_pool, save_pool
from semishot.errors import InputError
from semishot.estimator.classifier import PrototypeClassifier
from semishot.paper import jobs, plan
from semishot.report import results_page as results
from semishot.report.page import as_html
from semishot.report.sections import read_results
from semishot.sorter.classify import classify
from semishot.sorter.embedding_cache import EmbeddingCache
from semishot.sorter.encoders.image_encoder import load_encoder, open_encoder
from semishot.sorter.feature_files import read_features, read_labels
from semishot.sorter.moving import journal, move_files
from semishot.sorter.predict import predict
from semishot.sorter.requests import ClassifyRequest, PredictRequest
from semishot.system import tensor_files
from semishot.system.tensor_files import CHECKSUM
from semishot.training import loop
from semishot.training.config import FleetConfig, Member, Recipe
from semishot.training.evaluation import evaluate
from semishot.training.fleet_training import begin_or_resume, check_fleet
from semishot.training.fleets import load_model, save_model
from semishot.training.records import records_so_far

CPU = torch.device("cpu")
SHAPE = EpisodeShape(way=2, query=1, unlabeled=1, distractors=1)
RESULTS = Path(__file__).parents[2] / "results"


@cache
def rows() -> np.ndarray:
    """(12, 4): three heaps."""
    rng = np.random.default_rng(3)
    return (np.eye(3, 4).repeat(4, 0) * 5 + rng.normal(size=(12, 4))).astype(np.float32)


@cache
def home() -> Path:
    """A folder that stays: a pool, a run and a classifier, from which seeds are read."""
    folder = Path(tempfile.mkdtemp(prefix="semishot-fuzz-home-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    images = np.random.default_rng(0).integers(0, 255, (45, 1, 28, 28), dtype=np.uint8)
    splits = ["train"] * 3 + ["val"] * 3 + ["test"] * 3
    classes = [ImageClass(f"c{i}", "g", s, 5 * i, 5) for i, s in enumerate(splits)]
    pool = save_pool(folder / "glyphs", "glyphs", images, classes, {"made": "here"})
    recipe = Recipe(updates=2, filters=2, labeled_fraction=0.6)
    members = tuple(Member(m, s) for m in ("soft_kmeans", "masked_soft_kmeans") for s in (0, 1))
    config = FleetConfig(pool.name, pool.fingerprint, "ren2018", recipe, SHAPE, members)
    run = folder / "run"
    model, optimizer, _ = begin_or_resume(config, pool, run, CPU)
    save_model(run / "model.safetensors", config, model)
    held = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": 1}
    loop.save_state(run, held)
    labels = np.array(["a", "a", -1, "b", "b", -1, -1, -1, "c", -1, -1, -1], object)
    PrototypeClassifier().fit(rows(), labels).save(folder / "strings.safetensors")
    numbers = np.repeat([0, 1, -1], 4)
    PrototypeClassifier(None, reject=0.1).fit(rows(), numbers).save(folder / "ints.safetensors")
    kept = EmbeddingCache(folder / "cache", "0" * 32, 4)
    for row in rows():
        kept.add({hashlib.sha256(row.tobytes()).digest(): row})
    kept.flush()
    return folder


def with_checksum(data: bytes) -> bytes:
    """The checksum of a safetensors file of ours, where its header can still be read."""
    try:
        header, rest = tensor_files._parts(data)
    except (ValueError, RecursionError):
        return data
    about = header.get("__metadata__") if isinstance(header, dict) else None
    if isinstance(about, dict) and about.pop(CHECKSUM, None):
        about[CHECKSUM] = tensor_files._digest(header, rest)
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + rest


def classifiers() -> Sequence[bytes]:
    return [(home() / f"{name}.safetensors").read_bytes() for name in ("strings", "ints")]


def open_classifier(data: bytes, folder: Path) -> None:
    """As `semishot predict` does, by a saved model that takes features."""
    (folder / "classifier.safetensors").write_bytes(data)
    (folder / "encoder.json").write_text('{"format": 1, "encoder": "features"}')
    np.save(folder / "rows.npy", rows())
    predict(PredictRequest(folder, (folder / "rows.npy",), device="cpu"))


def models() -> Sequence[bytes]:
    return [(home() / "run" / "model.safetensors").read_bytes()]


def open_run(data: bytes, folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(data)
    config, model = load_model(folder, CPU)
    pool = open_pool(home() / "glyphs")
    seeds = [member.split_seed for member in config.members]
    evaluate(model, pool, "test", [SHAPE], seeds, episodes=2)


def configs() -> Sequence[bytes]:
    return [(home() / "run" / "config.json").read_bytes()]


def open_config(data: bytes, folder: Path) -> None:
    """A run folder whose config.json it is: looked for by `reproduce`, trained in by `train`."""
    run = folder / "glyphs" / "ren2018" / "it"
    run.mkdir(parents=True)
    (run / "config.json").write_bytes(data)
    wanted = FleetConfig.from_json(configs()[0].decode())
    plan.with_existing(wanted, folder)
    config = FleetConfig.from_json(data.decode("utf-8", "replace"))
    pool = open_pool(home() / "glyphs")
    check_fleet(config, pool, run)


def pools() -> Sequence[bytes]:
    return [(home() / "glyphs" / "pool.json").read_bytes()]


def open_description(data: bytes, folder: Path) -> None:
    (folder / "pool.json").write_bytes(data)
    (folder / "images.npy").hardlink_to(home() / "glyphs" / "images.npy")
    use_pool(folder)


def use_pool(folder: Path) -> None:
    pool = open_pool(folder)
    changed_classes(pool)
    config = FleetConfig.from_json(configs()[0].decode())
    fitting = FleetConfig(
        pool.name, pool.fingerprint, "ren2018", config.recipe, SHAPE, config.members
    )
    check_fleet(fitting, pool, folder)


def mend_pool(data: bytes) -> bytes:
    """The fingerprint of the classes as they are said to be."""
    try:
        said = json.loads(data)
        classes = tuple(ImageClass(*row) for row in said["classes"])
        said["fingerprint"] = ImagePool("", np.empty(0, np.uint8), classes).fingerprint
        return json.dumps(said).encode()
    except (ValueError, TypeError, KeyError, RecursionError):
        return data


def pool_arrays() -> Sequence[bytes]:
    return [(home() / "glyphs" / "images.npy").read_bytes()]


def open_pool_array(data: bytes, folder: Path) -> None:
    (folder / "images.npy").write_bytes(data)
    (folder / "pool.json").hardlink_to(home() / "glyphs" / "pool.json")
    use_pool(folder)


def encoders() -> Sequence[bytes]:
    identity = load_identity()
    said = [{"encoder": "features"}, {"encoder": "omniglot", "identity": identity}]
    said += [{"encoder": "trained by semishot", "identity": "0"}, {"encoder": "timm:resnet18"}]
    return [json.dumps({"format": 1, **one}).encode() for one in said]


@cache
def load_identity() -> str:
    return open_encoder("omniglot").identity


def open_encoder_json(data: bytes, folder: Path) -> None:
    (folder / "encoder.json").write_bytes(data)
    (folder / "encoder.safetensors").hardlink_to(home() / "run" / "model.safetensors")
    load_encoder(folder)


@cache
def onnx_files() -> Sequence[bytes]:
    """Two small graphs: means over pixels, and a convolution."""
    onnx, helper = import_module("onnx"), import_module("onnx.helper")
    kind, made = onnx.TensorProto.FLOAT, []
    takes = helper.make_tensor_value_info("x", kind, ["b", 3, 8, 8])
    gives = helper.make_tensor_value_info("y", kind, ["b", None, None, None])
    kernel = np.ones((2, 3, 3, 3), np.float32)
    for nodes, weights in (
        ([helper.make_node("GlobalAveragePool", ["x"], ["y"])], {}),
        ([helper.make_node("Conv", ["x", "k"], ["y"])], {"k": kernel}),
    ):
        held = [onnx.numpy_helper.from_array(value, name) for name, value in weights.items()]
        graph = helper.make_graph(nodes, "g", [takes], [gives], held)
        opsets = [helper.make_opsetid("", 18)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
        made.append(model.SerializeToString())
    return made


def open_onnx_file(data: bytes, folder: Path) -> None:
    (folder / "it.onnx").write_bytes(data)
    open_encoder(f"onnx:{folder / 'it.onnx'}")


@cache
def records() -> tuple[bytes, ...]:
    """A few records of each published file, so that a case is short."""
    found = []
    for path in sorted(RESULTS.glob("*/*.json")):
        said = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(said, list) or "variants" in said:
            name = f"{path.parent.name}/{path.name}"
            short = said[:6] if isinstance(said, list) else said
            found.append(json.dumps({"name": name, "content": short}).encode())
    return tuple(found)


def open_records(data: bytes, folder: Path) -> None:
    """Below a folder of published results: by `report`, by `results`, and as a run's result.json."""
    try:
        said = json.loads(data)
        name, content = said["name"], json.dumps(said["content"]).encode()
    except (ValueError, KeyError, TypeError, RecursionError):
        name, content = "omniglot/table1-ren2018.json", data
    if not isinstance(name, str) or name not in known_names():
        name = "omniglot/table1-ren2018.json"
    path = folder / name
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    refusals = []
    for use in (
        lambda: as_html(read_results(folder), None, 0),
        lambda: results.results_markdown(folder),
        lambda: held(path),
    ):
        try:
            use()
        except InputError as error:
            refusals.append(error)
    if refusals:
        raise refusals[0]


@cache
def known_names() -> set[str]:
    return {json.loads(record)["name"] for record in records()}


def held(path: Path) -> None:
    jobs.matching(records_so_far(path), None, SHAPE, 1, {})


def logs() -> Sequence[bytes]:
    line = {"step": 1, "learning_rate": 0.001, "loss": [1.0, 2.0, 1.5, 1.0], "accuracy": [0.5] * 4}
    return ["".join(json.dumps({**line, "step": s}) + "\n" for s in (1, 2, 3)).encode()]


def open_log(data: bytes, folder: Path) -> None:
    """By the report, and by a training that goes on."""
    run = folder / "glyphs" / "ren2018" / "run"
    run.mkdir(parents=True)
    (run / "config.json").write_bytes(configs()[0])
    (run / "log.jsonl").write_bytes(data)
    (run / "result.json").write_text(json.dumps(json.loads(records()[-1])["content"][:1]))
    config = FleetConfig.from_json(configs()[0].decode())
    refusals = []
    for use in (
        lambda: as_html(read_results(folder), None, 0),
        lambda: begin_or_resume(config, open_pool(home() / "glyphs"), run, CPU),
    ):
        try:
            use()
        except InputError as error:
            refusals.append(error)
    if refusals:
        raise refusals[0]


def journals() -> Sequence[bytes]:
    digest = hashlib.sha256(b"a").hexdigest()
    steps = [[f"@@/pile/{n}.png", "cat", f"{n}.png", digest] for n in (1, 2, 3)]
    steps.append(["@@/pile/4.png", "dog", "4.png", digest, "cat", "2.png"])
    hostile = [
        ["@@/outside/secret", "cat", "3.png", digest],
        ["@@/outside/new", "cat", "2.png", digest],
    ]
    return [
        json.dumps(
            {"format": 1, "how": how, "done": done, "steps": [*steps, *more], "seal": "0" * 64}
        ).encode()
        for how in ("move", "copy", "link")
        for done in (True, False)
        for more in ([], hostile)
    ]


def open_journal(data: bytes, folder: Path) -> None:
    """Whatever it says, nothing outside of OUT and the pile is made, moved or removed."""
    for name in ("pile/1.png", "outside/secret", "outside/deep/file", "out/sorted/cat/2.png"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"a")
    out = folder / "out"
    (out / journal.JOURNAL).write_bytes(data.replace(b"@@", str(folder).encode()))
    before = outside(folder)
    try:
        move_files.undo(out)
        raise AssertionError("a journal of somebody else's was believed")
    except InputError:
        assert outside(folder) == before
    try:
        if (found := journal.read_journal(out, folder / "pile")) is not None:
            move_files.complete(found)
        move_files.undo(out, folder / "pile")
    finally:
        assert outside(folder) == before, "files outside have changed"


def outside(folder: Path) -> dict[str, bytes]:
    places = (folder / "outside").rglob("*")
    return {str(p.relative_to(folder)): p.read_bytes() for p in places if p.is_file()}


def states() -> Sequence[bytes]:
    return [(home() / "run" / "state.pt").read_bytes()]


def mend_state(data: bytes) -> bytes:
    """The digest at its end, which a zip that was packed again has lost."""
    packed_again = data.rfind(b"PK\x05\x06") == len(data) - 22
    content = data if packed_again else data[: -loop.DIGEST_BYTES]
    return content + hashlib.sha256(content).digest()


def open_state(data: bytes, folder: Path) -> None:
    (folder / "state.pt").write_bytes(data)
    config = FleetConfig.from_json(configs()[0].decode())
    begin_or_resume(config, open_pool(home() / "glyphs"), folder, CPU)


def features() -> Sequence[bytes]:
    made = []
    for array in (rows(), rows().astype(np.float16), np.arange(12), np.array(["a", "-1", ""] * 4)):
        file = io.BytesIO()
        np.save(file, array)
        made.append(file.getvalue())
    return made


def open_features(data: bytes, folder: Path) -> None:
    """As features and as labels; then classified."""
    path = folder / "it.npy"
    path.write_bytes(data)
    try:
        read_labels(path, 12)
    except InputError:
        read_features(path)
    labels = folder / "labels.csv"
    labels.write_text("label\n" + 'a\nb\n""\n' * 4)
    classify(ClassifyRequest(path, folder / "out", labels=labels, device="cpu"))


def segments() -> Sequence[bytes]:
    return [path.read_bytes() for path in (home() / "cache").rglob("*.safetensors")]


def open_segment(data: bytes, folder: Path) -> None:
    """A damaged one is as good as none."""
    own = folder / ("0" * 32)
    own.mkdir()
    (own / "it.safetensors").write_bytes(data)
    kept = EmbeddingCache(folder, "0" * 32, 4)
    for digest in list(kept.places)[:20]:
        row = kept[digest]
        assert row.shape == (4,), f"a row {row.shape}"


MODEL_DOORS = [
    Door("saved classifiers", classifiers, open_classifier, odd_header, with_checksum),
    Door("trained models", models, open_run, odd_header, with_checksum),
    Door("checkpoints", states, open_state, odd_zip, mend_state),
    Door("embedding caches", segments, open_segment, odd_header),
    Door("npy features", features, open_features, odd_npy),
    Door("pool images", pool_arrays, open_pool_array, odd_npy),
    Door("pool.json", pools, open_description, odd_json, mend_pool),
    Door("config.json", configs, open_config, odd_json),
    Door("encoder.json", encoders, open_encoder_json, odd_json),
    Door("onnx encoders", onnx_files, open_onnx_file),
    Door("result files", records, open_records, odd_json),
    Door("logs", logs, open_log, odd_json_lines),
    Door("undo.json", journals, open_journal, odd_json),
]
