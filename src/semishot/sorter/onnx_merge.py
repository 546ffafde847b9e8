"""A user's ONNX encoder between what prepares images and the head: three graphs become one."""

from typing import Any

from semishot.errors import InputError, reason_of
from semishot.sorter.encoders.onnx_files import imported, parsed
from semishot.sorter.encoders.onnx_module import OnnxModule

PIXELS, FOUND = "pixels", "found"
"""The output of what prepares images, and the input of the head."""
OLDEST = 18
"""The oldest version of ONNX's operators that torch's exporter writes."""
DO = "export the encoder again with opset 18 or later and a dynamic batch"


def opset_for(module: OnnxModule) -> int:
    """The version of the operators for all three graphs."""
    if module.batch is not None:
        raise InputError(
            f"{module.name} takes {module.batch} image(s) at once, and the exported file would too: {DO}"
        )
    return max(OLDEST, _opset(parsed(module.data, module.name)))


def merged(module: OnnxModule, before: bytes, head: bytes, outputs: list[str]) -> Any:
    """`before` (images -> pixels), the encoder, `head` (found -> outputs) -> an onnx.ModelProto."""
    onnx = imported("onnx")
    parts = [parsed(data, module.name) for data in (before, module.data, head)]
    target = opset_for(module)
    try:
        if _opset(parts[1]) < target:
            parts[1] = imported("onnx.version_converter").convert_version(parts[1], target)
        newest = max(part.ir_version for part in parts)
        for part in parts:
            part.ir_version = newest
            del part.metadata_props[:]  # those of two parts may contradict
        prefix = imported("onnx.compose").add_prefix
        first = prefix(parts[0], "prepare/", rename_inputs=False, rename_outputs=False)
        encoder = prefix(parts[1], "encoder/")
        join = imported("onnx.compose").merge_models
        takes, found = f"encoder/{module.takes.name}", f"encoder/{module.preparation.output}"
        joined = join(first, encoder, [(PIXELS, takes)], outputs=[found])
        whole = join(joined, parts[2], [(found, FOUND)], outputs=outputs)
        onnx.checker.check_model(whole)
    except Exception as error:  # onnx raises many types for graphs that it cannot join
        raise InputError(
            f"{module.name} cannot be joined with the classifier ({reason_of(error)}): {DO}"
        ) from error
    return whole


def _opset(model: Any) -> int:
    return max(
        (one.version for one in model.opset_import if one.domain in ("", "ai.onnx")), default=1
    )
