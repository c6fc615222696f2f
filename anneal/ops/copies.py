"""torch's names of functions that copy where others give views, or whose parts may be changed: here they do the
same.
"""

from __future__ import annotations

from anneal.ops.arguments import alias
from anneal.ops.diagonals import diagonal
from anneal.ops.further import positive, split_with_sizes
from anneal.ops.joining import chunk, split, unbind, unfold
from anneal.ops.movement import expand, narrow, permute, squeeze, t, transpose, unsqueeze, view
from anneal.ops.strided import as_strided

__all__: list[str] = [
    "alias_copy",
    "as_strided_copy",
    "diagonal_copy",
    "expand_copy",
    "narrow_copy",
    "permute_copy",
    "split_with_sizes_copy",
    "squeeze_copy",
    "t_copy",
    "transpose_copy",
    "unbind_copy",
    "unfold_copy",
    "unsafe_chunk",
    "unsafe_split",
    "unsqueeze_copy",
    "view_copy",
]

alias_copy = alias(positive, "alias_copy")
as_strided_copy = alias(as_strided, "as_strided_copy")
diagonal_copy = alias(diagonal, "diagonal_copy")
expand_copy = alias(expand, "expand_copy")
narrow_copy = alias(narrow, "narrow_copy")
permute_copy = alias(permute, "permute_copy")
split_with_sizes_copy = alias(split_with_sizes, "split_with_sizes_copy")
squeeze_copy = alias(squeeze, "squeeze_copy")
t_copy = alias(t, "t_copy")
transpose_copy = alias(transpose, "transpose_copy")
unbind_copy = alias(unbind, "unbind_copy")
unfold_copy = alias(unfold, "unfold_copy")
unsafe_chunk = alias(chunk, "unsafe_chunk")
unsafe_split = alias(split, "unsafe_split")
unsqueeze_copy = alias(unsqueeze, "unsqueeze_copy")
view_copy = alias(view, "view_copy")
