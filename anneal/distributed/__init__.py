"""Programs of several participants: tensors that they add up, gather and hand round, and groups of threads."""

from anneal.distributed.collectives import all_gather, all_reduce, broadcast
from anneal.distributed.threads import ThreadGroup, in_threads
from anneal.errors import GroupError
from anneal.runtime import Group

__all__ = ["Group", "GroupError", "ThreadGroup", "all_gather", "all_reduce", "broadcast", "in_threads"]
