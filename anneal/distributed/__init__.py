"""Programs of several participants: tensors to add up, gather and hand round; groups of processes."""

from typing import TYPE_CHECKING

from anneal.distributed.collectives import (
    all_gather,
    all_reduce,
    average_gradients,
    barrier,
    broadcast,
    broadcast_all,
    buckets,
    clip_parts,
    gathered,
    gathered_later,
    recv,
    reduce_scatter,
    send,
)
from anneal.distributed.groups import (
    Alone,
    ReduceOp,
    destroy_process_group,
    get_rank,
    get_world_size,
    init,
    init_process_group,
    is_available,
    is_initialized,
    rank,
    size,
    started_ranks,
    world,
)
from anneal.doors import opened_later
from anneal.errors import GroupError
from anneal.runtime import Group

if TYPE_CHECKING:
    from anneal.distributed.mpi import MPIGroup
else:
    __getattr__ = opened_later(__name__)

__all__ = [
    "Alone", "Group", "GroupError", "MPIGroup", "ReduceOp", "all_gather", "all_reduce",
    "average_gradients", "barrier", "broadcast", "broadcast_all", "buckets", "clip_parts", "destroy_process_group",
    "gathered", "gathered_later", "get_rank", "get_world_size", "init", "init_process_group",
    "is_available", "is_initialized", "rank", "recv", "reduce_scatter", "send", "size", "started_ranks", "world",
]  # fmt: skip
