"""The family that each op belongs to, so that `anneal.ops` imports a family when one of its ops is first asked for.

`FAMILIES[file]` is what `__all__` says in that file of this room; a test holds the two together.
"""

from __future__ import annotations

__all__ = ["FAMILIES"]

# fmt: off
FAMILIES: dict[str, tuple[str, ...]] = {
    "activations": (
        "celu", "elu", "gelu", "hardshrink", "hardsigmoid", "hardswish", "hardtanh", "leaky_relu", "logsigmoid", "mish",
        "prelu", "relu", "relu6", "selu", "sigmoid", "silu", "softplus", "softshrink", "softsign", "swish",
        "tanhshrink", "threshold",
    ),
    "angles": (
        "acos", "acosh", "arccos", "arccosh", "arcsin", "arcsinh", "arctan", "arctan2", "arctanh", "asin", "asinh",
        "atan", "atan2", "atanh", "cos", "cosh", "deg2rad", "hypot", "rad2deg", "sin", "sinc", "sinh", "tan", "tanh",
    ),
    "attention": ("scaled_dot_product_attention",),
    "bessel": (
        "bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1", "i0", "i0e", "i1", "i1e", "modified_bessel_i0",
        "modified_bessel_i1", "modified_bessel_k0", "modified_bessel_k1", "scaled_modified_bessel_k0",
        "scaled_modified_bessel_k1", "spherical_bessel_j0",
    ),
    "conjugates": ("adjoint", "angle", "conj", "conj_physical", "real", "resolve_conj", "resolve_neg", "sgn"),
    "convolution": ("conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d"),
    "copies": (
        "alias_copy", "as_strided_copy", "diagonal_copy", "expand_copy", "narrow_copy", "permute_copy",
        "split_with_sizes_copy", "squeeze_copy", "t_copy", "transpose_copy", "unbind_copy", "unfold_copy",
        "unsafe_chunk", "unsafe_split", "unsqueeze_copy", "view_copy",
    ),
    "creation": (
        "arange", "bartlett_window", "blackman_window", "empty", "empty_like", "eye", "from_numpy", "full", "full_like",
        "hamming_window", "hann_window", "kaiser_window", "linspace", "logspace", "meshgrid", "ones", "ones_like",
        "tri", "tril_indices", "triu_indices", "zeros", "zeros_like",
    ),
    "diagonals": ("diag", "diag_embed", "diagonal", "fliplr", "flipud", "rot90", "tril", "triu"),
    "distances": ("cdist", "cosine_similarity", "pairwise_distance"),
    "dynamic": ("argwhere", "masked_select", "nonzero", "nonzero_static", "unique", "unique_consecutive"),
    "elementwise": (
        "add", "addcdiv", "addcmul", "clamp", "clip", "div", "divide", "divmod", "floor_divide", "fmod", "lerp",
        "maximum", "minimum", "mul", "multiply", "pow", "remainder", "sub", "subtract", "true_divide",
    ),
    "extremes": ("amax", "amin", "aminmax", "argmax", "argmin", "max", "min", "nanmax", "nanmin"),
    "functions": (
        "cbrt", "copysign", "erf", "erfc", "erfinv", "exp", "exp2", "expm1", "heaviside", "log", "log10", "log1p",
        "log2", "logaddexp", "logit", "reciprocal", "rsqrt", "signbit", "sqrt", "square", "xlogy",
    ),
    "further": (
        "astype", "bitwise_invert", "clamp_max", "clamp_min", "cumulative_prod", "cumulative_sum", "equal",
        "expand_dims", "fill", "float_power", "fmax", "fmin", "frexp", "gcd", "is_contiguous", "isreal", "lcm", "ldexp",
        "logaddexp2", "matrix_transpose", "ndimension", "nelement", "new_empty", "new_empty_strided", "new_full",
        "new_ones", "new_tensor", "new_zeros", "nextafter", "permute_dims", "positive", "rsub", "split_with_sizes",
        "stride", "type_as", "unstack",
    ),
    "gamma": ("digamma", "lgamma"),
    "images": ("affine_grid", "channel_shuffle", "fold", "grid_sample"),
    "indexing": (
        "gather", "index_add", "index_select", "masked_fill", "one_hot", "rows", "scatter", "scatter_add", "take",
        "take_along_dim", "where",
    ),
    "inplace": ("add_", "clamp_", "copy_", "div_", "fill_", "fill_diagonal_", "lerp_", "mul_", "sub_", "zero_"),
    "inplace_kin": (
        "abs_", "absolute_", "acos_", "acosh_", "addbmm_", "addcdiv_", "addcmul_", "addmm_", "addmv_", "addr_",
        "arccos_", "arccosh_", "arcsin_", "arcsinh_", "arctan2_", "arctan_", "arctanh_", "asin_", "asinh_", "atan2_",
        "atan_", "atanh_", "baddbmm_", "bitwise_and_", "bitwise_left_shift_", "bitwise_not_", "bitwise_or_",
        "bitwise_right_shift_", "bitwise_xor_", "ceil_", "clamp_max_", "clamp_min_", "clip_", "copysign_", "cos_",
        "cosh_", "cumprod_", "cumsum_", "deg2rad_", "digamma_", "divide_", "eq_", "erf_", "erfc_", "erfinv_", "exp2_",
        "exp_", "expm1_", "float_power_", "floor_", "floor_divide_", "fmod_", "frac_", "gcd_", "ge_", "greater_",
        "greater_equal_", "gt_", "heaviside_", "hypot_", "i0_", "index_add_", "index_copy_", "index_fill_",
        "index_put_", "index_reduce_", "lcm_", "ldexp_", "le_", "less_", "less_equal_", "lgamma_", "log10_", "log1p_",
        "log2_", "log_", "logical_and_", "logical_not_", "logical_or_", "logical_xor_", "logit_", "lt_", "masked_fill_",
        "masked_scatter_", "multiply_", "nan_to_num_", "ne_", "neg_", "negative_", "nextafter_", "not_equal_", "pow_",
        "put_", "rad2deg_", "reciprocal_", "relu_", "remainder_", "renorm_", "round_", "rsqrt_", "scatter_",
        "scatter_add_", "scatter_reduce_", "sgn_", "sigmoid_", "sign_", "sin_", "sinc_", "sinh_", "sqrt_", "square_",
        "squeeze_", "subtract_", "swapaxes_", "swapdims_", "t_", "tan_", "tanh_", "transpose_", "tril_", "triu_",
        "true_divide_", "trunc_", "unsqueeze_", "xlogy_",
    ),
    "inplace_random": (
        "bernoulli_", "cauchy_", "exponential_", "geometric_", "log_normal_", "normal_", "random_", "uniform_",
    ),
    "joining": (
        "atleast_1d", "atleast_2d", "atleast_3d", "block_diag", "cartesian_prod", "cat", "chunk", "column_stack",
        "combinations", "concat", "concatenate", "diagflat", "dsplit", "dstack", "hsplit", "hstack", "row_stack",
        "select", "select_scatter", "slice_scatter", "split", "stack", "sum_to_size", "tensor_split", "unbind",
        "unfold", "vsplit", "vstack",
    ),
    "layers": ("bilinear", "dropout", "embedding", "glu", "gumbel_softmax", "linear"),
    "linalg": (
        "addbmm", "addmm", "addmv", "addr", "baddbmm", "bmm", "cross", "dot", "einsum", "inner", "kron", "matmul",
        "matrix_norm", "mm", "mv", "outer", "tensordot", "trace", "vdot", "vecdot",
    ),
    "logic": (
        "allclose", "bitwise_and", "bitwise_left_shift", "bitwise_not", "bitwise_or", "bitwise_right_shift",
        "bitwise_xor", "eq", "ge", "greater", "greater_equal", "gt", "isclose", "isin", "le", "less", "less_equal",
        "logical_and", "logical_not", "logical_or", "logical_xor", "lt", "ne", "not_equal",
    ),
    "losses": (
        "binary_cross_entropy", "binary_cross_entropy_with_logits", "cosine_embedding_loss", "cross_entropy",
        "gaussian_nll_loss", "hinge_embedding_loss", "huber_loss", "kl_div", "l1_loss", "margin_ranking_loss",
        "mse_loss", "multi_margin_loss", "multilabel_soft_margin_loss", "nll_loss", "poisson_nll_loss",
        "smooth_l1_loss", "soft_margin_loss", "triplet_margin_loss",
    ),
    "movement": (
        "broadcast_tensors", "broadcast_to", "expand", "expand_as", "flatten", "flip", "moveaxis", "movedim", "narrow",
        "pad", "permute", "ravel", "repeat", "repeat_interleave", "reshape", "reshape_as", "roll", "shrink", "squeeze",
        "swapaxes", "swapdims", "t", "tile", "transpose", "unflatten", "unsqueeze", "view", "view_as",
    ),
    "normalisation": (
        "batch_norm", "group_norm", "instance_norm", "layer_norm", "local_response_norm", "normalize", "rms_norm",
    ),
    "placing": (
        "bucketize", "index_copy", "index_fill", "index_put", "masked_scatter", "scatter_reduce", "take_along_axis",
    ),
    "polynomials": (
        "chebyshev_polynomial_t", "chebyshev_polynomial_u", "chebyshev_polynomial_v", "chebyshev_polynomial_w",
        "hermite_polynomial_h", "hermite_polynomial_he", "laguerre_polynomial_l", "legendre_polynomial_p",
        "shifted_chebyshev_polynomial_t", "shifted_chebyshev_polynomial_u", "shifted_chebyshev_polynomial_v",
        "shifted_chebyshev_polynomial_w",
    ),
    "pooling": (
        "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", "adaptive_max_pool1d",
        "adaptive_max_pool2d", "adaptive_max_pool3d", "avg_pool1d", "avg_pool2d", "avg_pool3d", "lp_pool1d",
        "lp_pool2d", "max_pool1d", "max_pool2d", "max_pool3d",
    ),
    "random": (
        "bernoulli", "categorical", "manual_seed", "multinomial", "normal", "rand", "rand_like", "randint", "randn",
        "randn_like", "random_bits", "randperm", "uniform",
    ),
    "reduce": (
        "all", "any", "count_nonzero", "log_softmax", "logsumexp", "mean", "nanmean", "nanstd", "nansum", "nanvar",
        "norm", "prod", "softmax", "softmin", "std", "std_mean", "sum", "var", "var_mean",
    ),
    "resize": ("interpolate", "pixel_shuffle", "pixel_unshuffle"),
    "rounding": (
        "abs", "absolute", "ceil", "floor", "frac", "isfinite", "isinf", "isnan", "isneginf", "isposinf", "nan_to_num",
        "neg", "negative", "round", "sign", "trunc",
    ),
    "running": ("cummax", "cummin", "cumprod", "cumsum", "diff", "logcumsumexp"),
    "sorting": ("argsort", "bincount", "median", "nanmedian", "quantile", "searchsorted", "sort", "topk"),
    "statistics": (
        "Histogram", "corrcoef", "cov", "cumulative_trapezoid", "dist", "gradient", "histc", "histogram", "kthvalue",
        "matrix_power", "mode", "msort", "nanquantile", "pdist", "renorm", "trapezoid", "trapz", "vander",
    ),
    "strided": ("as_strided", "as_strided_scatter", "diagonal_scatter", "index_reduce", "put", "unravel_index"),
    "subscripts": ("update_slice",),
    "tails": ("entr", "erfcx", "log_ndtr", "ndtr", "ndtri", "xlog1py"),
    "windows": ("im2col",),
    "zetas": ("mvlgamma", "polygamma", "zeta"),
}
# fmt: on
