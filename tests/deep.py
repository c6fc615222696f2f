"""`make deep`: every row of every table, and what it came to in DEEP.md beside this file, which is committed with a
release.

`python -m tests.deep [PYTEST'S ARGUMENTS]` runs the tests of the deep tier. With arguments it is a part of them: then
nothing is written.
"""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from tests.blas import kernel

HERE = Path(__file__).parent
RESULT = HERE / "DEEP.md"
OUTCOMES = ("passed", "failed", "skipped")


@dataclass
class File:
    """What became of a file's cases, and how long they took together."""

    counts: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0


def counted(report: Path) -> tuple[dict[str, File], list[str]]:
    """From pytest's JUnit report: each file's counts, and the names of the cases that failed."""
    files: dict[str, File] = defaultdict(File)
    failed = []
    for case in ET.parse(report).getroot().iter("testcase"):
        name = case.get("file") or case.get("classname", "").replace(".", "/")
        kinds = {child.tag for child in case}
        outcome = "failed" if kinds & {"failure", "error"} else "skipped" if "skipped" in kinds else "passed"
        files[name].counts[outcome] += 1
        files[name].seconds += float(case.get("time") or 0)
        if outcome == "failed":
            failed.append(f"{name}::{case.get('name')}")
    return dict(sorted(files.items())), failed


def commit() -> str:
    """The commit that the tests ran on, and whether anything was changed since; empty outside of a repository."""
    git = ["git", "-C", str(HERE)]
    found = subprocess.run([*git, "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True, check=False)
    if found.returncode:
        return "not a repository"
    changes = ["status", "--porcelain", "--", ":/", f":(exclude,top){RESULT.relative_to(HERE.parent)}"]
    changed = subprocess.run([*git, *changes], capture_output=True, text=True, check=False).stdout.strip()
    return found.stdout.strip() + (" with changes" if changed else "")


def machine() -> str:
    """The processor's model and how many cores this process may use, the BLAS kernel and the WebGPU adapter."""
    from anneal import settings
    from anneal.backend import get_device
    from anneal.errors import DeviceError

    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    for line in cpuinfo.read_text(encoding="utf-8").splitlines() if cpuinfo.exists() else ():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    try:
        with settings.override(require_webgpu=True):  # as the tests do: a software adapter will do
            adapter = str(get_device("webgpu").describe()["adapter"])
    except DeviceError:
        adapter = "none"
    return (
        f"{model}, {cores} cores; {platform.system()}, Python {platform.python_version()}, NumPy {np.__version__} "
        f"(OpenBLAS {kernel() or 'unknown'}); WebGPU: {adapter}"
    )


def written(
    files: dict[str, File], failed: list[str], *, begun: datetime, seconds: float, where: str, what: str
) -> str:
    """The text of DEEP.md."""
    whole: Counter[str] = sum((f.counts for f in files.values()), Counter())
    lines = [
        "# The last `make deep`",
        "",
        "Every row of every table and every test there is (tests/tiers.py); written by tests/deep.py, committed before a release.",
        "",
        f"- begun {begun:%Y-%m-%d %H:%M} UTC on commit {what}",
        f"- {where}",
        f"- {', '.join(f'{whole[o]} {o}' for o in OUTCOMES)} in {seconds / 60:.0f} minutes",
        "",
        *(["Failed:", "", *(f"- `{name}`" for name in failed), ""] if failed else []),
        "| file | passed | failed | skipped | seconds |",
        "| --- | ---: | ---: | ---: | ---: |",
        *(
            f"| {name} | {' | '.join(str(f.counts[o]) for o in OUTCOMES)} | {f.seconds:.1f} |"
            for name, f in files.items()
        ),
        "",
    ]
    return "\n".join(lines)


def main(arguments: list[str]) -> int:
    """Run pytest, then write the result unless only a part was asked for; pytest's exit code."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    begun, start, what = datetime.now(UTC), time.monotonic(), commit()
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        code = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "--dist", "worksteal", "--tier", "deep", "--timeout", "1800"]
            + ["-o", "junit_family=xunit1", "--junitxml", str(report), *arguments],
            check=False,
        ).returncode
        if code > 1 or not report.exists():  # interrupted, or an error of usage
            return code
        files, failed = counted(report)
    if partial(arguments):
        print(f"only a part was run: {RESULT.name} is left as it is")
    else:
        text = written(files, failed, begun=begun, seconds=time.monotonic() - start, where=machine(), what=what)
        RESULT.write_text(text, encoding="utf-8")
        print(f"written: {RESULT.relative_to(HERE.parent)}")
    return code


def partial(arguments: list[str]) -> bool:
    """Whether pytest's arguments are about more than how many processes run everything."""
    return any(not re.fullmatch(r"-n\d+", a) for a in arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
