"""The paper's Tables 1 to 3 and 5 and Figure 4 as data: rows, columns, test episodes, published numbers."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from semishot.data.episodes import EpisodeShape
from semishot.paper.presets import MINI, TIERED
from semishot.training.config import SEMI_SUPERVISED_INFERENCE, SUPERVISED

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


DISTRACTORS = (0, 5)
"""The columns of every table, by distractor classes."""


@dataclass(frozen=True)
class PaperTable:
    """A table of the paper, or the numbers of a figure: what to measure, and the published numbers."""

    title: str
    dataset: str
    shots: tuple[int, ...]
    tests: Mapping[int, EpisodeShape]
    """The test episode by M, unlabeled images per class."""
    cells: Mapping[tuple[str, int, int], PublishedCell]
    """Keys are the model, shot and number of distractor classes."""


def _published(
    columns: Sequence[tuple[int, int]], text: str
) -> dict[tuple[str, int, int], PublishedCell]:
    """Cells from rows of numbers in the paper's order, mean and error for each (shot, H)."""
    cells = {}
    for model, line in zip(MODELS, text.strip().splitlines(), strict=True):
        numbers = [float(number) for number in line.split()]
        for column, mean, error in zip(columns, numbers[::2], numbers[1::2], strict=True):
            unbiased = error * (10 / 9) ** 0.5  # printed with ddof = 0 over 10 splits
            cells[(model, *column)] = PublishedCell(mean, error, unbiased)
    return cells


_BOTH = [(1, 0), (5, 0), (1, 5), (5, 5)]


def _later(model: str, source: str, *numbers: float) -> dict[tuple[str, int, int], PublishedCell]:
    """Cells of the columns of `_BOTH`, or of the first of them: mean and error; 0: no error is known."""
    of = zip(_BOTH, numbers[::2], numbers[1::2], strict=False)
    return {(model, *c): PublishedCell(mean, error or None, source=source) for c, mean, error in of}


TABLES = {
    "table1": PaperTable(
        "Table 1",
        "omniglot",
        (1,),
        # a class has 20 drawings, so M = 20 is impossible and both likely readings are kept
        {m: EpisodeShape(way=5, shot=1, query=19 - m, unlabeled=m) for m in (5, 10)},
        _published(
            [(1, 0), (1, 5)],
            """
            94.62 0.09  94.62 0.09
            97.45 0.05  95.08 0.09
            97.25 0.10  95.01 0.09
            97.68 0.07  97.17 0.04
            97.52 0.07  97.30 0.08
            """,
        ),
    ),
    "table2": PaperTable(
        "Table 2",
        MINI,
        (1, 5),
        {20: EpisodeShape(way=5, shot=1, query=20, unlabeled=20)},
        _published(
            _BOTH,
            """
            43.61 0.27  59.08 0.22  43.61 0.27  59.08 0.22
            48.98 0.34  63.77 0.20  47.42 0.33  62.62 0.24
            50.09 0.45  64.59 0.28  48.70 0.32  63.55 0.28
            49.03 0.24  63.08 0.18  48.86 0.32  61.27 0.24
            50.41 0.31  64.39 0.24  49.04 0.31  62.96 0.14
            """,
        )
        # the graph of TPN-semi has learned scales, and queries in it; its errors are standard errors by the
        # text, 95 % intervals by a heading. PRWN refines at 5 shots only; its first version has 70.11
        | _later(
            "label_propagation", "TPN-semi", 52.78, 0.27, 66.42, 0.21, 50.43, 0.84, 64.95, 0.73
        )
        | _later("prwn", "PRWN", 50.89, 0, 69.65, 0),
    ),
    "table3": PaperTable(
        "Table 3",
        TIERED,
        (1, 5),
        {20: EpisodeShape(way=5, shot=1, query=20, unlabeled=20)},
        _published(
            _BOTH,
            """
            46.52 0.52  66.15 0.22  46.52 0.52  66.15 0.22
            50.74 0.75  69.37 0.26  48.67 0.60  67.46 0.24
            51.52 0.36  70.25 0.31  49.88 0.52  68.32 0.22
            51.85 0.25  69.42 0.17  51.36 0.31  67.56 0.10
            52.39 0.44  69.88 0.20  51.38 0.38  69.08 0.25
            """,
        )
        | _later(
            "label_propagation", "TPN-semi", 55.74, 0.29, 71.01, 0.23, 53.45, 0.93, 69.93, 0.80
        ),
    ),
}

FIGURE_UNLABELED = "figure-unlabeled"
PILES = (0, 1, 2, 5, 10, 15, 20, 25)
"""M at test along Figure 4."""


def table_of(dataset: str) -> tuple[str, PaperTable]:
    """The paper's table of a data set, with its name; others are measured like Table 1."""
    named = [(name, table) for name, table in TABLES.items() if table.dataset == dataset]
    return named[0] if named else ("table1", TABLES["table1"])


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
    return PaperTable(
        "Accuracy over unlabeled images", dataset, (1, 5) if photos else (1,), tests, {}
    )


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
TABLE5_COLUMNS = (("omniglot", 1), (MINI, 1), (MINI, 5), (TIERED, 1), (TIERED, 5))
TABLE5_ROWS = """
nearest_neighbor pixels        40.39 0.36  26.74 0.48  31.43 0.51  26.55 0.50  30.79 0.53
nearest_neighbor random        59.55 0.46  24.03 0.38  27.54 0.42  25.49 0.45  30.01 0.47
nearest_neighbor pretrained    52.53 0.51  32.90 0.58  40.79 0.76  32.76 0.66  40.26 0.67
logistic_regression pixels     49.15 0.39  24.50 0.41  33.33 0.68  25.70 0.46  36.30 0.62
logistic_regression random     57.80 0.45  24.10 0.50  28.40 0.42  26.55 0.48  32.51 0.52
logistic_regression pretrained 48.49 0.47  30.28 0.54  40.27 0.59  34.52 0.68  43.58 0.72
"""


def published_baseline(
    dataset: str, shot: int, classifier: str, features: str
) -> PublishedCell | None:
    """The paper's cell: both kinds of logistic regression, and of random networks, are compared with one."""
    if (dataset, shot) not in TABLE5_COLUMNS:
        return None
    column = 2 + 2 * TABLE5_COLUMNS.index((dataset, shot))
    for row in map(str.split, TABLE5_ROWS.strip().splitlines()):
        if row[:2] == [classifier.removeprefix("adam_"), features.removeprefix("authors_")]:
            mean, error = map(float, row[column : column + 2])
            return PublishedCell(mean, error, error)
    return None
