"""Recurrent layers and loops of ONNX files by the number of their steps: the first run, and processor time a step.

    python -m benchmarks.onnx_loops --steps 16,64,65,128,1000 --json

Each layer has a batch of 1 and a width of 64; inputs and outputs are on the host. `first s` is the run that compiles.
Rounds take turns over the numbers of steps, so that other work on the machine meets all of them; `µs a step` is of the
cheapest run of all rounds, `median` of the one in the middle. `error` is the largest difference from ONNX Runtime.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

from benchmarks import _harness as h

WIDTH = 64
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4, "DynamicQuantizeLSTM": 4}
CASES = (*GATES, "Scan", "Loop")


def file_of(case: str, steps: int) -> bytes:
    """A model of one layer, or loop, over `x` (steps, 1, 64)."""
    import numpy as np
    from onnx import TensorProto, helper, numpy_helper

    random = np.random.default_rng(0)
    weights: dict[str, Any] = {}

    def weight(name: str, *shape: int) -> str:
        weights[name] = (random.standard_normal(shape) * 0.1).astype(np.float32)
        return name

    def value(name: str, *shape: Any, dtype: int = TensorProto.FLOAT) -> Any:
        return helper.make_tensor_value_info(name, dtype, shape)

    if case in GATES:
        rows = GATES[case] * WIDTH
        inputs = ["x", weight("w", 1, rows, WIDTH), weight("r", 1, rows, WIDTH), weight("b", 1, 2 * rows)]
        if case == "DynamicQuantizeLSTM":
            for name in "wr":
                weights[name] = random.integers(-60, 60, (1, WIDTH, rows)).astype(np.int8)
                weights |= {f"{name}s": np.full(1, 0.01, np.float32), f"{name}z": np.zeros(1, np.int8)}
            inputs += ["", "", "", "", "ws", "wz", "rs", "rz"]
        domain = "com.microsoft" if case == "DynamicQuantizeLSTM" else ""
        nodes = [helper.make_node(case, inputs, ["y"], hidden_size=WIDTH, domain=domain)]
    else:
        state, row = value("h", 1, WIDTH), value("row", 1, WIDTH)
        inner = [("MatMul", ["h", weight("r", WIDTH, WIDTH)], "m"), ("Add", ["m", "row"], "a"), ("Tanh", ["a"], "next")]
        inner += [("Mul", ["next", "next"], "out")]
        outputs = [value("next", 1, WIDTH), value("out", 1, WIDTH)]
        weights["start"] = np.zeros((1, WIDTH), np.float32)
        if case == "Loop":
            weights["steps"] = np.array(steps)
            inner = [("Gather", ["x", "turn"], "row"), ("Identity", ["on"], "goes"), *inner]
            number, on = value("turn", dtype=TensorProto.INT64), value("on", dtype=TensorProto.BOOL)
            taken, outputs = [number, on, state], [value("goes", dtype=TensorProto.BOOL), *outputs]
            inputs, how = ["steps", "", "start"], {}
        else:
            taken, inputs, how = [state, row], ["start", "x"], {"num_scan_inputs": 1}
        body = helper.make_graph([helper.make_node(op, i, [o]) for op, i, o in inner], "body", taken, outputs)
        nodes = [helper.make_node(case, inputs, ["last", "y"], body=body, **how)]
    kept = [numpy_helper.from_array(a, n) for n, a in weights.items()]
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, case, [value("x", steps, 1, WIDTH)], [y], kept)
    imports = [helper.make_opsetid("", 14), helper.make_opsetid("com.microsoft", 1)]
    return bytes(helper.make_model(graph, opset_imports=imports, ir_version=8).SerializeToString())


class Measured:
    """One case of so many steps, loaded and run once by both."""

    def __init__(self, case: str, steps: int, device: str) -> None:
        import numpy as np
        import onnxruntime

        from anneal import onnx

        file, self.name, self.steps = file_of(case, steps), case, steps
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.log_severity_level = 3
        self.session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
        self.feeds = {"x": np.random.default_rng(1).standard_normal((steps, 1, WIDTH)).astype(np.float32)}
        self.model = onnx.load(file, device)
        start = time.perf_counter()
        y = self.ours()
        self.first_s = time.perf_counter() - start
        self.error = float(abs(y - self.theirs()).max())
        self.times: dict[str, list[float]] = {"anneal": [], "onnxruntime": []}
        h.warm(self.ours, lambda: None)

    def ours(self) -> Any:
        return self.model.run(self.feeds)["y"].numpy()

    def theirs(self) -> Any:
        return self.session.run(["y"], self.feeds)[0]

    def round(self) -> None:
        count = max(1, 500 // self.steps)
        for who, run in (("anneal", self.ours), ("onnxruntime", self.theirs)):
            for _ in range(count):
                start = time.process_time()
                run()
                self.times[who].append(time.process_time() - start)

    def row(self) -> dict[str, Any]:
        def each(who: str, of: Any) -> float:
            return float(of(self.times[who])) * 1e6 / self.steps

        return {
            "case": self.name,
            "steps": self.steps,
            "first s": self.first_s,
            "µs a step": each("anneal", min),
            "median": each("anneal", statistics.median),
            "onnxruntime": each("onnxruntime", min),
            "error": self.error,
        }


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.onnx_loops", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--device", choices=("cpu", "webgpu"), default="cpu")
    parser.add_argument("--cases", default="", help="only those whose name contains one of these, with commas between")
    parser.add_argument("--steps", default="16,64,65,128,1000", help="numbers of steps, with commas between")
    parser.add_argument("--rounds", type=int, default=20, help="turns of each (default 20)")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    rows = []
    for case in CASES:
        if h.chosen(case, args.cases):
            measured = [Measured(case, int(n), args.device) for n in args.steps.split(",")]
            for _ in range(args.rounds):
                for one in measured:
                    one.round()
            rows += [one.row() for one in measured]
    h.report({"benchmark": "onnx_loops", "machine": h.machine(), "device": args.device, "rows": rows}, rows, args.json)


if __name__ == "__main__":
    main()
