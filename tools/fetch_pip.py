"""Install pip into an environment whose Python came without ensurepip (Debian without python3-venv).

Run by the Makefile with that environment's own Python. pip's wheel is a zip that runs itself.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import tempfile
import urllib.parse
import urllib.request
from pathlib import Path

INDEX = "https://pypi.org/pypi/pip/json"


def main() -> int:
    with urllib.request.urlopen(INDEX, timeout=60) as reply:
        files = json.load(reply)["urls"]
    wheel = next(f for f in files if f["packagetype"] == "bdist_wheel")
    with urllib.request.urlopen(urllib.parse.urljoin(INDEX, wheel["url"]), timeout=60) as reply:
        data = reply.read()
    if hashlib.sha256(data).hexdigest() != wheel["digests"]["sha256"]:
        print("the pip wheel from PyPI does not match its checksum", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, wheel["filename"])
        path.write_bytes(data)
        return subprocess.call([sys.executable, f"{path}/pip", "install", "-q", "--no-index", str(path)])


if __name__ == "__main__":
    sys.exit(main())
