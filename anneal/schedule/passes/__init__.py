"""The scheduler's passes and the list of them."""

from anneal.schedule.passes.early_rewrites import PERMUTATION
from anneal.schedule.passes.memory_plan import donate, fusible_reduces, nbytes, overwrites_rows, uses
from anneal.schedule.passes.pipeline import PASSES, run_passes
from anneal.schedule.passes.range_propagation import indexed, kernel_graph, simplify_indices
