"""The cells of the benchmark: of which domain, and what its tasks look like."""

import zlib
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from pile_tasks.domains import Domain
from pile_tasks.tasks import Shape, Task, draw

LARGE = 1500
"""Rows of a pile of which two tasks are enough."""


@dataclass(frozen=True)
class Cell:
    domain: Domain
    shape: Shape
    note: str = ""
    """What is special about it."""

    @property
    def name(self) -> str:
        s = self.shape
        text = f"{self.domain.name}: {s.way}-way, {s.shot} labels, pile {s.pile}"
        text += f", {s.share:.0%} strangers of {s.kinds} kinds" if s.share else ", no strangers"
        return (
            text + ("" if s.balanced else ", unbalanced") + (f", {self.note}" if self.note else "")
        )

    def tasks(self, wanted: int) -> int:
        return min(wanted, 2) if self.shape.pile >= LARGE else wanted

    def task(self, seed: int) -> Task:
        """A function of domain, shape and seed alone. A larger pile adds rows to a smaller one."""
        shape = f"{self.domain.name} {replace(self.shape, pile=0)}"
        rng = np.random.default_rng([zlib.crc32(shape.encode()), seed])
        return draw(self.domain, self.shape, rng)


def cells(sources: list[Domain]) -> list[Cell]:
    """Photographs share a grid: neighbouring domains take its odd and its even cells."""
    found = []
    photographs = [domain for domain in sources if domain.kind == "photographs"]
    for number, domain in enumerate(photographs):
        shapes = photograph_shapes()[number % 2 :: 2]
        found += [Cell(domain, shape) for shape in shapes if shape.way <= len(domain.classes)]
    found += traps(photographs[0])
    for domain in sources:
        if domain.kind != "photographs":
            own = SHAPES.get(domain.name) or SHAPES[domain.kind]
            found += [Cell(domain, shape) for shape in own]
    return found


def photograph_shapes() -> list[Shape]:
    strangers = ((0.0, "few"), (0.1, "many"), (0.5, "few"), (0.5, "many"), (0.8, "few"))
    found = [
        Shape(5, shot, 125, share, kinds, balanced=share in (0.0, 0.5))
        for shot, (share, kinds) in product((1, 3, 10), strangers)
    ]
    found += [  # few rows for each class
        Shape(way, shot, pile, share, "many")
        for (way, pile), shot, share in product(((10, 30), (12, 60)), (1, 5), (0.0, 0.5, 0.8))
    ]
    found += [
        Shape(way, shot, 400, share, kinds, balanced=False)
        for way, shot, (share, kinds) in product(
            (10, 12), (1, 3), ((0.0, "few"), (0.5, "few"), (0.2, "foreign"))
        )
    ]
    found += [Shape(2, 1, 20, share) for share in (0.0, 0.3)]
    return [*found, Shape(2, 2, 200, 0.8, "many"), Shape(16, 1, 250, 0.5, "foreign")]


def traps(domain: Domain) -> list[Cell]:
    """What went wrong before: bursts of near copies, one class, one row more than 2,000, wrong labels."""
    many = Shape(10, 1, 2000, 0.51, "many")
    return [
        Cell(domain, Shape(5, 1, 125, 0.4, burst=20), "20 near copies of one"),
        Cell(domain, Shape(5, 1, 125, 0.4, burst=50), "50 near copies of one"),
        Cell(domain, Shape(1, 1, 80, 0.5), "one class"),
        Cell(domain, Shape(1, 5, 80, 0.5), "one class"),
        Cell(domain, Shape(5, 1, 100, 1.0), "strangers alone"),
        Cell(domain, Shape(5, 5, 125, 0.4, wrong=0.1), "a tenth of the labels wrong"),
        Cell(domain, Shape(5, 1, 125, 0.5, named=10), "10 strangers named"),
        Cell(domain, many, "at 2,000 rows"),
        Cell(domain, Shape(10, 1, 2001, 0.51, "many"), "at 2,001 rows"),
    ]


TABLES = [Shape(2, shot, 60, 0.3) for shot in (1, 5)]
SHAPES = {
    "drawings": [
        *(Shape(5, shot, 95, share, "many") for shot, share in product((1, 5), (0.0, 0.5))),
        *(Shape(20, 1, 400, share, "few", balanced=False) for share in (0.0, 0.5)),
        *(Shape(50, shot, 900, share, "many") for shot, share in product((1, 5), (0.0, 0.3))),
        Shape(50, 1, 5000, 0.82, "many"),
    ],
    "text": [
        *(Shape(5, shot, 120, share, "few") for shot, share in product((1, 5, 10), (0.0, 0.5))),
        *(Shape(20, 5, 400, share, "many", balanced=False) for share in (0.0, 0.5)),
    ],
    "digits": [
        *(Shape(10, shot, 600, 0.0) for shot in (1, 3, 10)),
        *(Shape(5, shot, 400, share, "few") for shot, share in product((1, 5), (0.1, 0.5))),
        Shape(10, 5, 1700, 0.0),
    ],
    "pixels": [
        *(Shape(10, shot, 150, 0.0) for shot in (1, 3)),
        *(Shape(5, shot, 150, share, "few") for shot, share in product((1, 5), (0.1, 0.5))),
    ],
    "tables": [*(Shape(3, shot, 120, share) for shot, share in product((1, 5), (0.0, 0.3)))],
    "wine": [*(Shape(3, shot, 120, 0.0) for shot in (1, 5)), *TABLES],
    "iris": [*(Shape(3, shot, 100, 0.0) for shot in (1, 5)), *TABLES],
    "breast_cancer": [
        *(Shape(2, shot, 300, 0.0) for shot in (1, 5, 10)),
        Shape(2, 5, 300, 0.0, balanced=False),
        Shape(1, 5, 100, 0.3),
    ],
    "shapes": [
        *(Shape(2, shot, 300, share) for shot, share in product((1, 5), (0.0, 0.3))),
        Shape(2, 5, 5000, 0.2),
    ],
}
