"""Ablations: variants of a table's cells, trained beside the cells they are compared with."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from semishot import datasets
from semishot.data.episodes import EpisodeShape
from semishot.errors import InputError
from semishot.paper import presets, published
from semishot.paper.jobs import Site
from semishot.paper.on_workers import choose_runner
from semishot.paper.plan import Job, with_existing
from semishot.paper.requests import AblationRequest
from semishot.training.config import SUPERVISED, FleetConfig, Member, Recipe
from semishot.training.records import AblationRecord, Record, ablation_record
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
DETACHED = "no gradient through assignments"
AS_IN_CODE = "both, as in the authors' code"
TWICE = "mask applied twice"
TEXT = {"halvings": presets.TEXT_HALVINGS}
VARIANTS = (
    *(
        Variant("schedule of the paper's text", "ren2018", m, recipe=TEXT)
        for m in published.TRAINED
    ),
    Variant("schedule of the paper's text", "ren2018", SUPERVISED, recipe=TEXT, columns=(0,)),
    Variant(DETACHED, "ren2018", "soft_kmeans", {"detach_assignments": True}),
    Variant("distances over 2 r^2", "ren2018", CLUSTER, {"two_r_squared": True}),
    Variant("queries scored over N + 1", "ren2018", CLUSTER, {"score_distractors": True}),
    Variant(
        AS_IN_CODE,
        "ren2018",
        CLUSTER,
        {"two_r_squared": True, "score_distractors": True},
    ),
    Variant(TWICE, "ren2018", MASKED, {"mask_power": 2}),
    *(
        Variant(
            "float32 (TF32) instead of bf16",
            "ren2018",
            model,
            recipe={"precision": "tf32"},
            columns=(5,),
        )
        for model in published.TRAINED
    ),
    Variant("trained 5-way", "semishot", MASKED, train={"way": 5}, columns=(5,)),
    Variant("no augmentation", "semishot", MASKED, recipe={"augment": 0.0}, columns=(5,)),
    Variant(
        "ren2018's learning rates",
        "semishot",
        MASKED,
        recipe={
            "learning_rate": 1e-3,
            "cosine": False,
            "halvings": presets.CODE_HALVINGS,
        },
        columns=(5,),
    ),
)


PHOTO_VARIANTS = tuple(
    v if v.name == TWICE else replace(v, columns=(5,))
    for v in VARIANTS
    if v.name in (DETACHED, AS_IN_CODE, TWICE)
)
"""For miniImageNet and tieredImageNet: each trained method as the authors' code has it, with distractors,
where Table 2 is below the paper's with 1 shot; the mask applied twice in both columns."""


def variants_of(dataset: str) -> tuple[Variant, ...]:
    return PHOTO_VARIANTS if dataset in (presets.MINI, presets.TIERED) else VARIANTS


UPDATES = {"semishot": 10_000}
"""Fewer than the preset's: enough to compare its ingredients."""


@dataclass(frozen=True)
class AblationCell:
    """A variant in a column, or the preset's own cell that it is compared with."""

    dataset: str
    variant: Variant
    column: int
    departs: bool

    @property
    def recipe(self) -> Recipe:
        recipe = presets.preset(self.variant.preset, self.dataset).recipe
        recipe = replace(recipe, **self.variant.recipe) if self.departs else recipe
        return recipe.with_updates(UPDATES.get(self.variant.preset, recipe.updates))

    @property
    def train(self) -> EpisodeShape:
        chosen = presets.preset(self.variant.preset, self.dataset)
        if self.variant.model == SUPERVISED:
            return replace(chosen.train, unlabeled=0)
        shape = replace(chosen.train, distractors=self.column)
        return replace(shape, **self.variant.train) if self.departs else shape

    @property
    def options(self) -> Mapping[str, Any]:
        return self.variant.options if self.departs else {}

    @property
    def test(self) -> EpisodeShape:
        """At the first M of the data set's table."""
        known = {table.dataset: table for table in published.TABLES.values()}
        tests = known.get(self.dataset, published.TABLES["table1"]).tests
        return replace(next(iter(tests.values())), distractors=self.column)

    def holds(self, record: Record) -> bool:
        return (
            (record["preset"], record["model"]) == (self.variant.preset, self.variant.model)
            and record["options"] == self.options
            and record["recipe"] == self.recipe.changes()
            and record["train"] == self.train.as_dict()
            and record["distractors"] == self.column
        )


def ablations(
    request: AblationRequest,
    where: Where,
    workers: Workers = THIS_PROCESS,
    tensorboard: bool = False,
) -> list[AblationRecord]:
    """Records of every variant (`variant` is its name) and of the unchanged cells (`""`)."""
    pool = datasets.load(request.dataset, where.data_root)
    device, run = choose_runner(workers, where.device)
    site = Site(pool, where.runs, device, tensorboard)
    cells = chosen_cells(pool.name, request.only)
    labeled = []
    for record in run(ablation_jobs(cells, request.splits, site), site):
        names = [c.variant.name if c.departs else "" for c in cells if c.holds(record)]
        labeled += [ablation_record(record, name, request.only) for name in names[:1]]
    return labeled


def chosen_cells(dataset: str, only: str) -> list[AblationCell]:
    """The cells of the variants whose names contain `only`, and those they are compared with."""
    variants = variants_of(dataset)
    if not any(only in variant.name for variant in variants):
        known = "; ".join(dict.fromkeys(variant.name for variant in variants))
        raise InputError(f"no ablation's name contains {only!r}; there are: {known}")
    return [
        AblationCell(dataset, variant, column, departs)
        for variant in variants
        if only in variant.name
        for column in variant.columns
        for departs in (False, True)
    ]


def ablation_jobs(cells: Sequence[AblationCell], splits: int, site: Site) -> list[Job]:
    """Runs of the same recipe and episode share a fleet; fleets trained for a table are used again."""
    pool = site.pool
    jobs, shared = [], {(c.variant.preset, c.recipe, c.train): c.test for c in cells}
    for (preset, recipe, shape), test in shared.items():
        members = [
            Member(c.variant.model, seed, dict(c.options))
            for c in cells
            if (c.variant.preset, c.recipe, c.train) == (preset, recipe, shape)
            for seed in range(splits)
        ]
        unique = tuple(m for i, m in enumerate(members) if m not in members[:i])
        config = FleetConfig(pool.name, pool.fingerprint, preset, recipe, shape, unique)
        jobs += [
            Job(found, None, (test,), wanted) for found, wanted in with_existing(config, site.runs)
        ]
    return jobs
