"""Rewrite the outputs that the documents show with what their examples print now: `python -m tests.docs.refresh`."""

from __future__ import annotations

import contextlib
import io
import re
import tempfile

from anneal import settings
from tests.docs.test_documents import DOCUMENTS, EXAMPLE, ROOT, read

__all__ = ["main"]


def main() -> None:
    for name in DOCUMENTS:

        def rerun(match: re.Match[str], name: str = name) -> str:
            printed = io.StringIO()
            with (
                settings.override(device="cpu"),
                contextlib.redirect_stdout(printed),
                tempfile.TemporaryDirectory() as folder,
                contextlib.chdir(folder),
            ):
                exec(compile(match[1], name, "exec"), {"__name__": "__main__"})
            return f"```python\n{match[1]}```\n\n```text\n{printed.getvalue().rstrip()}\n```"

        (ROOT / name).write_text(EXAMPLE.sub(rerun, read(name)), encoding="utf-8")


if __name__ == "__main__":
    main()
