"""Matrices by torch.linalg's names: `an.linalg.solve(a, b)`, `an.linalg.svd(x).S`.

Decompositions, inverses, systems and determinants run on the host, by NumPy's LAPACK, whatever the device: the operands
are read back, and the results are written to the device. They are nodes of the graph all the same: lazy, called anew by
each replay of a jit function, differentiated by `backward`, `grad` and `jvp` as often as one likes, batched over
leading axes and by `vmap`. Norms of vectors and products of matrices are ops of the device. There are no complex
numbers, and so no `eig`.

Floats narrower than float32 are computed in float32; integers are an error that says `.float()`.
"""

from typing import TYPE_CHECKING

from anneal.doors import names_of, opened_later

if TYPE_CHECKING:
    from anneal.errors import LinAlgError as LinAlgError
    from anneal.linalg._solving import *
    from anneal.linalg._spectra import *
    from anneal.linalg._triangles import *
    from anneal.stubs.linalg import *
else:
    __getattr__ = opened_later(__name__)
    __all__ = names_of(__name__)
