"""The paper's Tables 1 to 3 and 5 and Figure 4 as data: rows, columns, test episodes, published numbers."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from semishot.data.settings import EpisodeShape
from semishot.paper.presets import MINI, TIERED
from semishot.training.config import SEMI_SUPERVISED_INFERENCE, SUPERVISED
from semishot.training.records import Record
from semishot.training.run_folder import PARTIAL

MODELS = {
    SUPERVISED: "Supervised",
    SEMI_SUPERVISED_INFERENCE: "Semi-Supervised Inference",
    "soft_kmeans": "Soft k-Means",
    "distractor_cluster": "Soft k-Means + Cluster",
    "masked_soft_kmeans": "Masked Soft k-Means",
}
"""The rows of Tables 1-3, in the paper's order and words."""

OTHERS = {
    "cosine_kmeans": "Cosine k-Means",
    "fast_weights": "Fast Weights",
    "fitted_mask": "Fitted Mask",
    "label_propagation": "Label Propagation",
    "oslo": "OSLO",
    "prwn": "PRWN",
}
"""Names of the methods that are not the paper's."""

TRAINED = ("soft_kmeans", "distractor_cluster", "masked_soft_kmeans")
"""The models trained on unlabeled images; the first two rows share one supervised training."""


def title(model: str) -> str:
    """What to call a model in a table: the paper's words, or readable ones for any other method. Options may
    follow it, as in `oslo steps=3`."""
    known = MODELS | OTHERS
    model, *options = model.split(" ")
    if options:
        return f"{title(model)}, {', '.join(options).replace('=', ' ').replace('_', ' ')}"
    module, _, name = model.partition(":")
    if model in known or not name:
        return known.get(model) or model.replace("_", " ").capitalize()
    return module if name == "Refiner" else f"{name} ({module})"


def rows(models: Iterable[str]) -> list[str]:
    """The paper's rows, then any others of these models, in their order."""
    return list(dict.fromkeys([*MODELS, *models]))


def row_of(record: Record) -> str:
    """A row of a table: a model, with its options as in `oslo steps=3`."""
    return " ".join([record["model"], *(f"{k}={v}" for k, v in record["options"].items())])


# What is tested

DISTRACTORS = (0, 5)
"""The columns of every table, by distractor classes."""
FIGURE_UNLABELED = "figure-unlabeled"
PILES = (0, 1, 2, 5, 10, 15, 20, 25)
"""M at test along Figure 4."""


@dataclass(frozen=True)
class PaperTable:
    """A table of the paper, or the numbers of a figure: what to measure."""

    name: str
    """As in `semishot reproduce table1`."""
    title: str
    dataset: str
    shots: tuple[int, ...]
    tests: Mapping[int, EpisodeShape]
    """The test episode by M, unlabeled images per class."""


_PHOTOS = {20: EpisodeShape(way=5, shot=1, query=20, unlabeled=20)}
# a class has 20 drawings, so M = 20 is impossible and both likely readings are kept
_DRAWINGS = {m: EpisodeShape(way=5, shot=1, query=19 - m, unlabeled=m) for m in (5, 10)}
TABLES = {
    "table1": PaperTable("table1", "Table 1", "omniglot", (1,), _DRAWINGS),
    "table2": PaperTable("table2", "Table 2", MINI, (1, 5), _PHOTOS),
    "table3": PaperTable("table3", "Table 3", TIERED, (1, 5), _PHOTOS),
}


def table_of(dataset: str) -> PaperTable:
    """The paper's table of a data set; others are measured like Table 1."""
    named = (table for table in TABLES.values() if table.dataset == dataset)
    return next(named, TABLES["table1"])


def dataset_of(name: str) -> str:
    """The data set of a table; figures are of Omniglot unless another is asked for."""
    return TABLES[name].dataset if name in TABLES else "omniglot"


def table(name: str, dataset: str) -> PaperTable:
    """A table, or the numbers of a figure, for a data set: its test episodes are the data set's own."""
    if name != FIGURE_UNLABELED:
        return TABLES[name]
    photos = dataset in (MINI, TIERED)
    query, most = (20, 25) if photos else (9, 10)  # the same at every M: a class has 20 drawings
    tests = {m: EpisodeShape(way=5, shot=1, query=query, unlabeled=m) for m in PILES if m <= most}
    title, shots = "Accuracy over unlabeled images", (1, 5) if photos else (1,)
    return PaperTable(name, title, dataset, shots, tests)


# Table 5 (Appendix C)

CLASSIFIERS = {
    "nearest_neighbor": "1-NN",
    "adam_logistic_regression": "LR",
    "logistic_regression": "LR, converged",
}
"""LR is 200 steps of Adam without a penalty, as in the authors' code; converged is what
scikit-learn's LogisticRegression() does. The paper has one row for both."""
FEATURES = {
    "pixels": "Pixel",
    "random": "CNN rnd",
    "authors_random": "CNN rnd, the authors'",
    "pretrained": "CNN pre",
}
"""`random` has a network for each split; the authors' code has one, the same in every run."""
ONE_SHOT = EpisodeShape(way=5, shot=1, query=14, unlabeled=0)
PHOTO_SHOTS = tuple(EpisodeShape(way=5, shot=shot, query=5, unlabeled=0) for shot in (1, 5))
TABLE5_TEST = {MINI: PHOTO_SHOTS, TIERED: PHOTO_SHOTS}
"""The queries of the authors' code; other data sets are tested as Omniglot is, with ONE_SHOT."""

# The published numbers


@dataclass(frozen=True)
class PublishedCell:
    """A published number: accuracy in percent."""

    mean: float
    error: float | None = None
    """As printed."""
    standard_error: float | None = None
    """Of the mean over splits, with ddof = 1."""
    source: str = ""
    """A later paper, which used the same encoder and label splits; empty for this paper."""


Key = tuple[str, str, int, int]
"""Data set, row, shot and number of distractor classes."""
_DRAWN = [("omniglot", 1, 0), ("omniglot", 1, 5)]
_MINI = [(MINI, 1, 0), (MINI, 5, 0), (MINI, 1, 5), (MINI, 5, 5)]
_TIERED = [(TIERED, shot, h) for _, shot, h in _MINI]
_BASELINES = [_DRAWN[0], *_MINI[:2], *_TIERED[:2]]
LATER = {"label_propagation": "TPN-semi", "prwn": "PRWN"}
"""Methods of later papers. The graph of TPN-semi has learned scales, and queries in it; its errors are
standard errors (text) or 95 % intervals (a heading). PRWN refines at 5 shots only; it first had 70.11."""


def _cells(columns: list[tuple[str, int, int]], text: str) -> dict[Key, PublishedCell]:
    """Rows of numbers, mean and error for each column; a later paper's may lack errors and columns."""
    cells = {}
    for row, *words in map(str.split, text.strip().splitlines()):
        numbers, source = [float(word) for word in words], LATER.get(row, "")
        for (dataset, shot, h), mean, error in zip(
            columns, numbers[::2], numbers[1::2], strict=False
        ):
            # Tables 1 to 3 are printed with ddof = 0 over 10 splits
            known = None if source else error if ":" in row else error * (10 / 9) ** 0.5
            cells[dataset, row, shot, h] = PublishedCell(mean, error or None, known, source)
    return cells


CELLS: dict[Key, PublishedCell] = {
    **_cells(
        _DRAWN,
        """
        supervised                 94.62 0.09  94.62 0.09
        semi_supervised_inference  97.45 0.05  95.08 0.09
        soft_kmeans                97.25 0.10  95.01 0.09
        distractor_cluster         97.68 0.07  97.17 0.04
        masked_soft_kmeans         97.52 0.07  97.30 0.08
        """,
    ),
    **_cells(
        _MINI,
        """
        supervised                 43.61 0.27  59.08 0.22  43.61 0.27  59.08 0.22
        semi_supervised_inference  48.98 0.34  63.77 0.20  47.42 0.33  62.62 0.24
        soft_kmeans                50.09 0.45  64.59 0.28  48.70 0.32  63.55 0.28
        distractor_cluster         49.03 0.24  63.08 0.18  48.86 0.32  61.27 0.24
        masked_soft_kmeans         50.41 0.31  64.39 0.24  49.04 0.31  62.96 0.14
        label_propagation          52.78 0.27  66.42 0.21  50.43 0.84  64.95 0.73
        prwn                       50.89 0     69.65 0
        """,
    ),
    **_cells(
        _TIERED,
        """
        supervised                 46.52 0.52  66.15 0.22  46.52 0.52  66.15 0.22
        semi_supervised_inference  50.74 0.75  69.37 0.26  48.67 0.60  67.46 0.24
        soft_kmeans                51.52 0.36  70.25 0.31  49.88 0.52  68.32 0.22
        distractor_cluster         51.85 0.25  69.42 0.17  51.36 0.31  67.56 0.10
        masked_soft_kmeans         52.39 0.44  69.88 0.20  51.38 0.38  69.08 0.25
        label_propagation          55.74 0.29  71.01 0.23  53.45 0.93  69.93 0.80
        """,
    ),
    **_cells(
        _BASELINES,
        """
        nearest_neighbor:pixels         40.39 0.36  26.74 0.48  31.43 0.51  26.55 0.50  30.79 0.53
        nearest_neighbor:random         59.55 0.46  24.03 0.38  27.54 0.42  25.49 0.45  30.01 0.47
        nearest_neighbor:pretrained     52.53 0.51  32.90 0.58  40.79 0.76  32.76 0.66  40.26 0.67
        logistic_regression:pixels      49.15 0.39  24.50 0.41  33.33 0.68  25.70 0.46  36.30 0.62
        logistic_regression:random      57.80 0.45  24.10 0.50  28.40 0.42  26.55 0.48  32.51 0.52
        logistic_regression:pretrained  48.49 0.47  30.28 0.54  40.27 0.59  34.52 0.68  43.58 0.72
        """,
    ),
}
"""The cells of Tables 1 to 3 and 5."""


def cell_of(record: Record, **other: int) -> PublishedCell | None:
    """The published cell of a record, or of its row at another shot or number of distractors.

    Both kinds of logistic regression, and of random networks, have one.
    """
    if record.get("preparation") == PARTIAL:
        return None
    row = record["model"] if record["kind"] == "ablation" else row_of(record)
    if record["kind"] == "baseline":
        row = f"{record['model']}:{record['features']}".replace("adam_", "").replace("authors_", "")
    at = {"shot": record["shot"], "distractors": record["distractors"], **other}
    return CELLS.get((record["dataset"], row, at["shot"], at["distractors"]))
