"""What torch's autocast casts on CUDA: `python -m tests.tensor.torch_autocast` writes torch_autocast.json.

The lists are those of torch's own test of autocast, read as text, of names that have a kernel of autocast.
"""

from __future__ import annotations

import ast
import json
from pathlib import Path

PATH = Path(__file__).with_name("torch_autocast.json")
LISTS = {
    "low": ("torch_fp16", "nn_fp16", "linalg_fp16"),
    "float32": ("torch_fp32", "nn_fp32"),
    "widest": ("torch_need_autocast_promote",),
}


def main() -> None:
    import torch

    path = Path(torch.__file__).parent / "testing" / "_internal" / "autocast_test_lists.py"
    tree = ast.parse(path.read_text(encoding="utf-8"))
    cls = next(n for n in ast.walk(tree) if isinstance(n, ast.ClassDef) and n.name == "AutocastTestLists")
    found = {
        ast.unparse(n.targets[0]).removeprefix("self."): {
            e.elts[0].value for e in n.value.elts if isinstance(e, ast.Tuple) and isinstance(e.elts[0], ast.Constant)
        }
        for n in ast.walk(cls)
        if isinstance(n, ast.Assign) and isinstance(n.value, ast.List)
    }
    keys = torch._C._dispatch_get_registrations_for_dispatch_key("AutocastCUDA")
    kernels = {k.removeprefix("aten::").partition(".")[0] for k in keys}
    out = {rule: sorted(set.union(*[found[n] for n in names]) & kernels) for rule, names in LISTS.items()}
    PATH.write_text(json.dumps(out, indent=1) + "\n")


if __name__ == "__main__":
    main()
