"""An exported network that is small enough to be written by hand."""

import json

import onnx
from onnx import helper


def tiny_onnx(path, classes=("cat", "dog"), outputs=None, **metadata):
    """A file that says how bright an image of 2×3 is, without what exporting takes."""
    graph = helper.make_graph(
        [
            helper.make_node("Flatten", ["input"], ["flat"]),
            helper.make_node("MatMul", ["flat", "weight"], ["scores"]),
        ],
        "tiny",
        [helper.make_tensor_value_info("input", 1, ["n", 1, 2, 3])],
        [helper.make_tensor_value_info("scores", 1, ["n", 2])],
        [helper.make_tensor("weight", 1, [6, 2], [0.0, 1.0] * 6)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    told = {"kind": "images", "size": [1, 2, 3], "mean": [0.5], "std": [0.5], "resize": None}
    for name, value in ({"classes": classes, "preprocessing": told} | metadata).items():
        if value is not None:
            text = value if isinstance(value, str) else json.dumps(value)
            model.metadata_props.add(key=name, value=text)
    onnx.save(model, path)
    return path
