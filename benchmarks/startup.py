"""Start-up: what `import anneal.tensor` and `anneal --help` cost, in cold processes.

python -m benchmarks.startup --json
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from typing import Any

from benchmarks import _harness as h

IMPORT = "import time; t = time.perf_counter(); import anneal.tensor; print(time.perf_counter() - t)"
HELP = "import sys; sys.argv = ['anneal', '--help']; from anneal.cli import main; main()"
LIMITS = {"import anneal.tensor": 0.25, "anneal --help": 0.4}


def run(code: str, cache: str) -> tuple[float, str]:
    """Seconds and stdout of a fresh interpreter; byte code is kept in `cache`, as an installation keeps it."""
    env = h.environment({"PYTHONPYCACHEPREFIX": cache})
    env.pop("PYTHONDONTWRITEBYTECODE", None)
    start = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", code], env=env, cwd=h.ROOT, capture_output=True, text=True, check=True)
    return time.perf_counter() - start, done.stdout


def measure(runs: int) -> dict[str, Any]:
    imports, helps, bare = [], [], []
    with tempfile.TemporaryDirectory() as cache:
        run(IMPORT, cache), run(HELP, cache)  # writes the byte code
        for _ in range(runs):
            imports.append(float(run(IMPORT, cache)[1]))
            helps.append(run(HELP, cache)[0])
            bare.append(run("pass", cache)[0])
    result: dict[str, Any] = {"machine": h.machine(), "runs": runs, "results": {}}
    for name, values in (("import anneal.tensor", imports), ("anneal --help", helps), ("python -c pass", bare)):
        result["results"][name] = {**h.summary(values), "limit": LIMITS.get(name)}
    return result


def rows(result: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"what": n, "median ms": r["median"] * 1e3, "min ms": r["min"] * 1e3, "limit ms": (r["limit"] or 0) * 1e3 or ""}
        for n, r in result["results"].items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.startup", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    result = measure(max(1, args.runs))
    h.report(result, rows(result), args.json)


if __name__ == "__main__":
    main()
