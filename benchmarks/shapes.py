"""Loops over thousands of shapes: does the process grow, and do later shapes cost more than earlier ones?

    python -m benchmarks.shapes conv                    20,000 shapes, each once; a line for each thousand
    python -m benchmarks.shapes recurrent --again 300   shapes that come back: 300 of them, in turn
    python -m benchmarks.shapes eager --device webgpu --count 3000

`growth` is the resident size after the last thousand less that after the second (the first fills caches up to their
bounds: `filled` is from the start), `slower` the processor time of the last thousand over that of the second.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from typing import Any

from benchmarks import _harness as h

Body = Callable[[int, int, int], Any]  # of the shape's number and two sizes that no other number has


def _eager(an: Any) -> Body:
    return lambda n, a, b: ((an.ones(a, b) + 1) * 2).sum(1).numpy()


def _matmul(an: Any) -> Body:
    return lambda n, a, b: (an.ones(a, b) @ an.ones(b, 1 + n % 7)).numpy()


def _conv(an: Any) -> Body:
    w = an.randn(3, 2, 3, 3)
    return lambda n, a, b: an.nn.functional.conv2d(an.ones(1, 2, a + 3, b + 3), w).relu().numpy()


def _jit(an: Any) -> Body:
    f = an.jit(lambda x: (x * 2 + 1).exp().sum(0))

    def body(n: int, a: int, b: int) -> None:
        for _ in range(3):  # as it stands, captured, replayed
            f(an.ones(a, b)).numpy()

    return body


def _training(an: Any, jitted: bool = False) -> Body:
    nn = an.nn
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    opt = an.optim.Adam(model.parameters(), lr=1e-3)

    def step(x: Any, y: Any) -> Any:
        loss = nn.functional.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss

    run = an.jit(step) if jitted else step
    return lambda n, a, b: run(an.ones(1 + n, 8), an.zeros(1 + n, dtype=an.int32)).item()


def _mixed(an: Any) -> Body:
    f = an.jit(lambda x, y: (x.softmax(-1) @ y).tanh())
    norm = an.nn.LayerNorm(8)

    def body(n: int, a: int, b: int) -> None:  # a third of the shapes for each of three
        x = an.arange(a * b, dtype=an.float32).reshape(a, b)
        y = an.cat([x, x.flip(0)], 1).transpose(0, 1)
        norm(an.ones(a, 8)).sum().item()
        if n % 3 == 0:
            f(x, y[:b]).numpy()
        elif n % 3 == 1:
            x[x > 1.0] = 0.0
            x.sort(0)[0].cumsum(1).numpy()
        else:
            w = an.ones(b, 3, requires_grad=True)
            (x @ w).pow(2).mean().backward()
            w.grad.numpy()

    return body


def _recurrent(an: Any) -> Body:
    cell = an.nn.LSTM(4, 8)
    return lambda n, a, b: cell(an.ones(1 + n % 40, 1 + n // 40, 4))[0].sum().item()


def _onnx(an: Any) -> Body:
    from onnx import TensorProto, helper, numpy_helper

    import anneal.onnx

    w = numpy_helper.from_array(an.randn(8, 4).numpy(), "w")
    steps = [("MatMul", "xw", "y"), ("Relu", "y", "z"), ("Softmax", "z", "out")]
    nodes = [helper.make_node(op, list(given) if op == "MatMul" else [given], [made]) for op, given, made in steps]
    x, y = [helper.make_tensor_value_info(v, TensorProto.FLOAT, ["a", "b", n]) for v, n in (("x", 8), ("out", 4))]
    file = helper.make_model(helper.make_graph(nodes, "shapes", [x], [y], [w]))
    model = anneal.onnx.load(file.SerializeToString())
    return lambda n, a, b: model.run({"x": an.ones(a, b, 8)})["out"].numpy()


MODES: dict[str, Callable[[Any], Body]] = {
    "eager": _eager,
    "matmul": _matmul,
    "conv": _conv,
    "jit": _jit,
    "training": _training,
    "training-jit": lambda an: _training(an, jitted=True),
    "mixed": _mixed,
    "recurrent": _recurrent,
    "onnx": _onnx,
}


def loop(mode: str, count: int, again: int | None, each: int = 1000) -> dict[str, Any]:
    """The resident size and the processor time of each `each` shapes."""
    import anneal as an

    body, rows = MODES[mode](an), []
    start, begun = h.resident_mib(), time.process_time()
    for i in range(count):
        n = i % again if again else i
        body(n, 1 + n % 61, 1 + n // 61)
        if (i + 1) % each == 0:
            rows.append({"shapes": i + 1, "mib": h.resident_mib(), "seconds": time.process_time() - begun})
            print("{shapes}: {mib:.0f} MiB, {seconds:.1f} s".format(**rows[-1]), file=sys.stderr, flush=True)
            begun = time.process_time()
    first, last = rows[min(1, len(rows) - 1)], rows[-1]
    return {
        "mode": mode,
        "again": again or "never",
        "filled": last["mib"] - start,
        "growth": last["mib"] - first["mib"],
        "slower": last["seconds"] / first["seconds"],
        "rows": rows,
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.shapes", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("mode", choices=MODES)
    parser.add_argument("--count", type=int, default=20_000, help="calls in all (default 20,000)")
    parser.add_argument("--each", type=int, default=1000, help="calls of a line (default 1000)")
    parser.add_argument("--again", type=int, help="how many shapes there are; as many as calls if not given")
    parser.add_argument("--device", choices=("cpu", "webgpu"), default="cpu")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    from anneal.runtime import set_default_device

    set_default_device(args.device)
    found = loop(args.mode, args.count, args.again, args.each)
    result = {"benchmark": "shapes", "machine": h.machine(), "device": args.device, **found}
    h.report(result, [{k: v for k, v in found.items() if k != "rows"}], args.json)


if __name__ == "__main__":
    main()
