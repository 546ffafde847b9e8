"""Compile the kernels of refinement and loss for a GPU that need not be there: errors, registers, spills.

Triton's interpreter runs kernels that its compiler refuses, so both are needed where there is no GPU.
"""

import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import triton
from compare_refiners import CASES, GLYPHS, PHOTOS, Case
from torch import Tensor
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from semishot.network.encoder import embedding_features
from semishot.training.fleets import build_fleet

TARGET = GPUTarget("cuda", 90, 32)
TYPES = {torch.float32: "*fp32", torch.int32: "*i32"}
ALIGNED = [["tt.divisibility", 16]]
MULTIPLES = ("points", "width")
"""Arguments that are multiples of 16."""
_seen: set[tuple[Any, ...]] = set()


def type_of(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(type_of(each) for each in value)
    if isinstance(value, Tensor):
        return TYPES[value.dtype]
    return "i32" if isinstance(value, int) else "fp32"


def compiled(kernel: Any, _grid: tuple[int, ...]) -> Callable[..., None]:
    """In place of `launching.launch`: compile the kernel, and print what it needs."""

    def run(*arguments: Any, **options: Any) -> None:
        pairs = list(zip(kernel.params, arguments, strict=True))
        constants = {p.name: value for p, value in pairs if p.is_constexpr}
        key = kernel.__name__, *constants.items(), *options.items()
        if key in _seen:
            return
        _seen.add(key)
        signature = {p.name: "constexpr" if p.is_constexpr else type_of(v) for p, v in pairs}
        hints: dict[tuple[int, ...], Any] = {}
        for i, (p, value) in enumerate(pairs):
            if isinstance(value, Tensor) or p.name in MULTIPLES:
                hints[i,] = ALIGNED
            elif isinstance(value, tuple):
                hints |= {(i, j): ALIGNED for j in range(len(value))}
        source = ASTSource(kernel, signature, constants, hints)
        binary = triton.compile(source, target=TARGET, options=options)
        usage = resources(binary.asm["cubin"])
        shared = binary.metadata.shared // 1024
        print(f"    {kernel.__name__:28} {usage}, shared {shared} KiB {constants}", flush=True)

    return run


def resources(binary: bytes) -> str:
    """Registers, and bytes of stack (spilled registers) of a thread."""
    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(binary)
        file.flush()
        said = subprocess.run(
            [tool, "-res-usage", file.name], capture_output=True, text=True, check=True
        ).stdout
    found = dict(part.split(":") for part in said.split() if part.startswith(("REG:", "STACK:")))
    return f"registers {found['REG']:>3}, stack {found['STACK']:>4}"


def compile_case(case: Case, image: tuple[int, int]) -> None:
    recipe, shape = case.recipe_of(image), case.shape(image)
    side = image[1] // 16
    features = embedding_features(recipe.filters, (image[1], image[1]))
    members = case.members(case.model.count("+") + 1)
    fleet = build_fleet(members, recipe, image[0], features).train()
    size = (shape.images, len(members) * recipe.filters, side, side)
    maps = torch.zeros(size).contiguous(memory_format=torch.channels_last).requires_grad_()
    present = torch.ones(len(members)) if case.target_has_distractors else None
    losses = fleet.fused_losses(maps, shape, present)
    if losses is None:
        print("    none: plain functions")
    else:
        losses.sum().backward()


def main() -> None:
    for name, module in list(sys.modules.items()):
        if name.startswith("semishot.network.fused") and hasattr(module, "launch"):
            module.launch = compiled  # type: ignore[attr-defined]
    chosen = sys.argv[1:] or list(CASES)
    for name in chosen:
        for image in (PHOTOS, GLYPHS):
            print(f"{name}, {image[1]} x {image[1]}", flush=True)
            compile_case(CASES[name], image)


if __name__ == "__main__":
    main()
