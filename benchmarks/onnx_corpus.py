"""The node cases of the onnx package, one after the other: which pass, which fail and why, and how long it takes.

python -m benchmarks.onnx_corpus                 all of them, on the default device
python -m benchmarks.onnx_corpus --plain         the 1584 without strings, sequences, optionals, control flow, preview,
                                                 ai.onnx.ml, bfloat16 and types of less than 8 bits or floats of 8
python -m benchmarks.onnx_corpus softmax --device webgpu --atol 1e-5 -v
"""

from __future__ import annotations

import argparse
import collections
import time
import warnings


def main() -> None:
    """Run the cases whose names hold one of the given words, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", help="run only cases whose names hold one of these")
    parser.add_argument("--kind", default="node", choices=("node", "simple", "pytorch-operator", "pytorch-converted"))
    parser.add_argument("--plain", action="store_true", help="only cases that need nothing but plain tensors")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--atol", type=float, help="instead of the case's own")
    parser.add_argument("--times", type=int, default=1, help="how often to run each model")
    parser.add_argument("--tensors", action="store_true", help="give the inputs as tensors on the device")
    parser.add_argument("--part", default="0/1", help="N/OF: every OF-th case from the N-th on")
    parser.add_argument("-v", "--verbose", action="store_true", help="print each failure")
    options = parser.parse_args()
    from tests.onnx.corpus import file_cases, needs, node_cases, run

    warnings.simplefilter("ignore")
    n, of = map(int, options.part.split("/"))
    cases = node_cases() if options.kind == "node" else file_cases(options.kind)
    names = [c for c in cases if not options.words or any(w in c for w in options.words)]
    names = [c for c in names if not options.plain or not needs(cases[c])][n::of]
    failures: dict[str, str] = {}
    times = []
    started = time.perf_counter()
    for name in names:
        begun = time.perf_counter()
        try:
            run(cases[name], options.device, options.atol, options.times, on_device=options.tensors)
        except Exception as e:  # whatever it is, it is a row of the table
            failures[name] = f"{type(e).__name__}: {e}".strip()
        times.append(time.perf_counter() - begun)
    for name, why in failures.items():
        if options.verbose:
            print(f"{name}: {' '.join(why.split())[:300]}")
    kinds = collections.Counter(" ".join(why.split())[:60] for why in failures.values())
    for why, count in kinds.most_common(40):
        print(f"{count:5}  {why}")
    median = sorted(times)[len(times) // 2] * 1e3 if times else 0
    print(
        f"{len(names) - len(failures)} of {len(names)} pass on {options.device} in {time.perf_counter() - started:.0f} s, "
        f"median {median:.1f} ms"
    )


if __name__ == "__main__":
    main()
