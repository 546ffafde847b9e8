"""Ablations: variants of a table's cells, trained beside the cells they are compared with."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, cast

from semishot import datasets
from semishot.errors import InputError
from semishot.paper import presets, published
from semishot.paper.plan import PlannedCell, PlannedTest, fleets_of
from semishot.paper.reproduce import measured_fleets, open_site
from semishot.paper.requests import AblationRequest
from semishot.training.config import SUPERVISED
from semishot.training.records import AblationRecord, Record
from semishot.training.requests import Where
from semishot.workers import THIS_PROCESS, Workers


@dataclass(frozen=True)
class Variant:
    name: str
    preset: str
    """The preset that is changed."""
    model: str
    options: Mapping[str, Any] = field(default_factory=dict)
    recipe: Mapping[str, Any] = field(default_factory=dict)
    """Changes to the preset's recipe."""
    train: Mapping[str, Any] = field(default_factory=dict)
    """Changes to the training episode."""
    columns: tuple[int, ...] = published.DISTRACTORS
    """Distractor classes at test."""


CLUSTER, MASKED = "distractor_cluster", "masked_soft_kmeans"
DETACHED, TWICE = "no gradient through assignments", "mask applied twice"
AS_IN_CODE = "both, as in the authors' code"
SCHEDULE, FLOATS = "schedule of the paper's text", "float32 (TF32) instead of bf16"
TEXT, TF32 = {"halvings": presets.TEXT_HALVINGS}, {"precision": "tf32"}
RATES = {"learning_rate": 1e-3, "cosine": False, "halvings": presets.CODE_HALVINGS}
TWO_R, WITH_CLUSTER = {"two_r_squared": True}, {"score_distractors": True}
VARIANTS = (
    *(Variant(SCHEDULE, "ren2018", model, recipe=TEXT) for model in published.TRAINED),
    Variant(SCHEDULE, "ren2018", SUPERVISED, recipe=TEXT, columns=(0,)),
    Variant(DETACHED, "ren2018", "soft_kmeans", {"detach_assignments": True}),
    Variant("distances over 2 r^2", "ren2018", CLUSTER, TWO_R),
    Variant("queries scored over N + 1", "ren2018", CLUSTER, WITH_CLUSTER),
    Variant(AS_IN_CODE, "ren2018", CLUSTER, TWO_R | WITH_CLUSTER),
    Variant(TWICE, "ren2018", MASKED, {"mask_power": 2}),
    *(Variant(FLOATS, "ren2018", m, recipe=TF32, columns=(5,)) for m in published.TRAINED),
    *(
        Variant(f"{steps} refinement steps", "ren2018", model, recipe={"steps": steps})
        for steps in (2, 5)
        for model in published.TRAINED
    ),
    Variant("trained 5-way", "semishot", MASKED, train={"way": 5}, columns=(5,)),
    Variant("no augmentation", "semishot", MASKED, recipe={"augment": 0.0}, columns=(5,)),
    Variant("ren2018's learning rates", "semishot", MASKED, recipe=RATES, columns=(5,)),
)
PHOTO_VARIANTS = tuple(
    v if v.name == TWICE else replace(v, columns=(5,))
    for v in VARIANTS
    if v.name in (DETACHED, AS_IN_CODE, TWICE)
)
"""For miniImageNet and tieredImageNet: each trained method as the authors' code has it, with distractors,
where Table 2 is below the paper's with 1 shot; the mask applied twice in both columns."""
UPDATES = {"semishot": 10_000}
"""Fewer than the preset's: enough to compare its ingredients."""


def ablations(
    request: AblationRequest,
    where: Where,
    workers: Workers = THIS_PROCESS,
    tensorboard: bool = False,
) -> list[AblationRecord]:
    """Records of every variant (`variant` is its name) and of the unchanged cells (`""`)."""
    pool = datasets.load(request.dataset, where.data_root)
    site = open_site(pool, where, workers, tensorboard)
    cells = chosen_cells(pool.name, request.only)
    fleets = fleets_of(cells, request.splits, pool, site.runs)
    labeled = []
    for record in measured_fleets(fleets, site):
        name = next((cell.variant for cell in cells if is_of(record, cell)), None)
        if name is not None:
            about = {"kind": "ablation", "variant": name, "only": request.only}
            labeled.append(cast(AblationRecord, {**record, **about}))
    return labeled


def chosen_cells(dataset: str, only: str) -> list[PlannedCell]:
    """The cells of the variants whose names contain `only`, and those they are compared with."""
    variants = PHOTO_VARIANTS if dataset in (presets.MINI, presets.TIERED) else VARIANTS
    chosen = [variant for variant in variants if only in variant.name]
    if not chosen:
        known = "; ".join(dict.fromkeys(variant.name for variant in variants))
        raise InputError(f"no ablation's name contains {only!r}; there are: {known}")
    return [
        cell_of(dataset, each, column)
        for variant in chosen
        for column in variant.columns
        for each in (Variant("", variant.preset, variant.model), variant)
    ]


def cell_of(dataset: str, variant: Variant, column: int) -> PlannedCell:
    """Tested at the first M of the data set's table."""
    chosen = presets.preset(variant.preset, dataset)
    recipe = replace(chosen.recipe, **variant.recipe)
    recipe = recipe.with_updates(UPDATES.get(variant.preset, recipe.updates))
    train = chosen.episode(chosen.train.shot, column, refines=variant.model != SUPERVISED)
    train = replace(train, **variant.train)
    test = next(iter(published.table_of(dataset).tests.values()))
    tests = [PlannedTest(replace(test, distractors=column))]
    own = variant.preset, recipe, train, variant.model, variant.options, tests
    return PlannedCell(*own, variant=variant.name)


def is_of(record: Record, cell: PlannedCell) -> bool:
    return (
        (record["preset"], record["model"]) == (cell.preset, cell.model)
        and record["options"] == cell.options
        and record["recipe"] == cell.recipe.changes()
        and record["train"] == cell.train.as_dict()
        and record["distractors"] == cell.tests[0].shape.distractors
    )
