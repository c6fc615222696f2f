"""The scheduler's passes, a file each, and the list of them."""

from anneal.schedule.passes.early_rewrites import PERMUTATION
from anneal.schedule.passes.pipeline import PASSES, run_passes
from anneal.schedule.passes.range_propagation import forget_kernels, indexed, kernel_graph, simplify_indices
