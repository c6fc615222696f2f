"""The machine's devices, asked of `anneal doctor --json` in a process of its own, and kept a while."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from typing import Any

from anneal.web.children import environment, python

__all__ = ["doctor"]

FRESH_S = 60.0
PATIENCE_S = 60.0
_lock = asyncio.Lock()
_last: tuple[float, dict[str, Any]] = (float("-inf"), {})


async def doctor() -> dict[str, Any]:
    """The report; with status "failed" and a cause where the process could not tell."""
    global _last
    async with _lock:
        if time.monotonic() - _last[0] < FRESH_S:
            return _last[1]
        report = await _asked()
        _last = (time.monotonic(), report)
        return report


async def _asked() -> dict[str, Any]:
    process = await asyncio.create_subprocess_exec(
        *python("anneal.web.command"), "doctor", "--json",
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        env=environment(),
    )  # fmt: skip
    try:
        out, err = await asyncio.wait_for(process.communicate(), PATIENCE_S)
        found = json.loads(out)
        if isinstance(found, dict):
            return found
        cause = "it said something else"
    except TimeoutError:
        cause = f"it took more than {PATIENCE_S:.0f} s"
    except ValueError:
        cause = err.decode("utf-8", "replace").strip()[-2000:] or f"exit code {process.returncode}"
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
    return {"status": "failed", "cause": cause, "advice": [], "adapters": [], "chosen": None}
