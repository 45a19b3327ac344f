"""Write the results of `tests/dumps/engines/polygraphy` with Polygraphy, which runs ONNX Runtime.

    python tests/interop/write_polygraphy_results.py out

Writes a tiny ONNX model of MLPs and runs it twice, all tensors marked as outputs: `golden.json`, and
`target.json` with the weight of /model/layers.1/down_proj times 1.5. Needs polygraphy, onnx, onnxruntime and
onnx_graphsurgeon.
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

WIDTH, INNER, LAYERS = 8, 16, 3


def build(factor: float) -> onnx.ModelProto:
    """Make the model, one of its weights times a factor."""
    made = np.random.default_rng(5)
    nodes, weights = [], []

    def product(name: str, given: str, width: int, out: int) -> str:
        weight = made.standard_normal((width, out)).astype(np.float32) / np.float32(width) ** 0.5
        if name == "/model/layers.1/down_proj":
            weight *= np.float32(factor)
        weights.append(numpy_helper.from_array(weight, f"{name}.weight"))
        nodes.append(helper.make_node("MatMul", [given, weights[-1].name], [f"{name}/MatMul_output_0"]))
        return str(nodes[-1].output[0])

    def node(operator: str, name: str, *given: str) -> str:
        nodes.append(helper.make_node(operator, given, [f"{name}/{operator}_output_0"]))
        return str(nodes[-1].output[0])

    hidden = "hidden_states"
    for layer in range(LAYERS):
        path = f"/model/layers.{layer}"
        inner = node("Relu", f"{path}/act", product(f"{path}/up_proj", hidden, WIDTH, INNER))
        hidden = node("Add", path, hidden, product(f"{path}/down_proj", inner, INNER, WIDTH))
    nodes.append(helper.make_node("Identity", [hidden], ["logits"]))
    given = helper.make_tensor_value_info("hidden_states", TensorProto.FLOAT, [2, WIDTH])
    last = helper.make_tensor_value_info("logits", TensorProto.FLOAT, [2, WIDTH])
    graph = helper.make_graph(nodes, "tiny", [given], [last], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def main() -> None:
    """Write both results."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("out", type=Path)
    options = parser.parse_args()
    options.out.mkdir(parents=True)
    for side, factor in (("golden", 1.0), ("target", 1.5)):
        with tempfile.TemporaryDirectory() as folder:
            model = Path(folder) / "model.onnx"
            onnx.save(build(factor), model)
            marked = ["--onnxrt", "--onnx-outputs", "mark", "all", "--iterations", "1", "--seed", "1"]
            tool = [str(Path(sys.executable).parent / "polygraphy"), "run", str(model), *marked]
            subprocess.run([*tool, "--save-outputs", str(options.out / f"{side}.json")], check=True)


if __name__ == "__main__":
    main()
