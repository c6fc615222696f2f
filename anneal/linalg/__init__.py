"""Matrices by torch.linalg's names: `an.linalg.solve(a, b)`, `an.linalg.svd(x).S`.

Decompositions, inverses, systems and determinants run on the host, by NumPy's LAPACK, on every device: values are
read back, and the results written. They are nodes of the graph all the same: lazy, called anew by each replay of a jit
function, differentiated by `backward`, `grad` and `jvp` as often as one likes, batched over leading axes and by `vmap`.
Norms of vectors and products of matrices are ops of the device. There are no complex numbers, and so no `eig`.

Floats narrower than float32 are computed in float32; integers are an error that says `.float()`.
"""

from anneal.errors import LinAlgError
from anneal.linalg._products import (
    cross,
    diagonal,
    matrix_exp,
    matrix_power,
    multi_dot,
    vander,
)
from anneal.linalg._solving import (
    LstSq,
    SLogDet,
    det,
    inv,
    inv_ex,
    lstsq,
    pinv,
    slogdet,
    solve,
    solve_ex,
    solve_triangular,
    tensorinv,
    tensorsolve,
)
from anneal.linalg._spectra import (
    SVD,
    Eigh,
    cond,
    eigh,
    eigvalsh,
    matrix_norm,
    matrix_rank,
    norm,
    svd,
    svdvals,
    vector_norm,
)
from anneal.linalg._triangles import (
    LU,
    QR,
    LUFactor,
    LUFactorEx,
    cholesky,
    cholesky_ex,
    householder_product,
    lu,
    lu_factor,
    lu_factor_ex,
    lu_solve,
    qr,
)
from anneal.ops import matmul, matrix_transpose, outer, tensordot, trace, vecdot

__all__ = [
    "LU", "QR", "SVD", "Eigh", "LUFactor", "LUFactorEx", "LinAlgError", "LstSq", "SLogDet", "cholesky", "cholesky_ex",
    "cond", "cross", "det", "diagonal", "eigh", "eigvalsh", "householder_product", "inv", "inv_ex", "lstsq", "lu",
    "lu_factor", "lu_factor_ex", "lu_solve", "matmul", "matrix_exp", "matrix_norm", "matrix_power", "matrix_rank",
    "matrix_transpose", "multi_dot", "norm", "outer", "pinv", "qr", "slogdet", "solve", "solve_ex", "solve_triangular",
    "svd", "svdvals", "tensordot", "tensorinv", "tensorsolve", "trace", "vander", "vecdot", "vector_norm",
]  # fmt: skip
