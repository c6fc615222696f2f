"""The vision transformer (Dosovitskiy et al., 2021), with timm's names (`patch_embed.proj`,
`blocks.0.attn.qkv`, ...).
"""

from __future__ import annotations

from collections.abc import Sequence

from anneal.errors import ShapeError
from anneal.nn import init
from anneal.nn._attention import SelfAttention
from anneal.nn._layers import Linear
from anneal.nn._module import Module
from anneal.nn._norms import LayerNorm
from anneal.nn._windows import Conv2d
from anneal.ops import checked, per_axis
from anneal.tensor import Tensor
from anneal.tensor import functional as F

__all__ = ["PatchEmbed", "ViT", "ViTBlock"]

STD = 0.02


class PatchEmbed(Module):
    """An image as a row of patches: (batch, in_chans, h, w) to (batch, patches, embed_dim), a linear map of each.

    Raises ShapeError if the patches do not divide the image.

    >>> PatchEmbed(8, 4, 3, 16)(Tensor.ones(1, 3, 8, 8)).shape
    (1, 4, 16)
    """

    @checked
    def __init__(
        self,
        img_size: int | Sequence[int] = 224,
        patch_size: int | Sequence[int] = 16,
        in_chans: int = 3,
        embed_dim: int = 768,
        bias: bool = True,
    ) -> None:
        image, patch = (
            per_axis("PatchEmbed", "img_size", img_size, 2),
            per_axis("PatchEmbed", "patch_size", patch_size, 2),
        )
        if image[0] % patch[0] or image[1] % patch[1]:
            raise ShapeError(f"PatchEmbed: patches of {patch} do not divide an image of {image}")
        self.img_size, self.patch_size = image, patch
        self.num_patches = (image[0] // patch[0]) * (image[1] // patch[1])
        self.proj = Conv2d(in_chans, embed_dim, patch, stride=patch, bias=bias)

    @checked
    def forward(self, x: Tensor) -> Tensor:
        if x.ndim != 4 or x.shape[2:] != self.img_size:
            raise ShapeError(
                f"PatchEmbed: x has shape (batch, channels, {', '.join(map(str, self.img_size))}), not {x.shape}"
            )
        return self.proj(x).flatten(2).transpose(1, 2)


class _MLP(Module):
    """Two linear layers with gelu between."""

    @checked
    def __init__(self, dim: int, hidden: int, dropout: float) -> None:
        self.dropout = dropout
        self.fc1, self.fc2 = Linear(dim, hidden), Linear(hidden, dim)

    @checked
    def forward(self, x: Tensor) -> Tensor:
        return F.dropout(self.fc2(self.fc1(x).gelu()), self.dropout, self.training)


class ViTBlock(Module):
    """`x + attn(norm1(x))`, then `x + mlp(norm2(x))`; attention is over all positions.

    >>> ViTBlock(8, 2)(Tensor.ones(1, 5, 8)).shape
    (1, 5, 8)
    """

    @checked
    def __init__(self, dim: int, num_heads: int, mlp_ratio: float = 4.0, dropout: float = 0.0) -> None:
        self.norm1 = LayerNorm(dim, eps=1e-6)
        self.attn = SelfAttention(dim, num_heads, dropout=dropout)
        self.norm2 = LayerNorm(dim, eps=1e-6)
        self.mlp = _MLP(dim, int(dim * mlp_ratio), dropout)

    @checked
    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class ViT(Module):
    """Patches, a class token before them, learnt positions, blocks, and logits from the class token.

    Linear weights start normal with deviation 0.02, biases zero, as in the paper's successors.

    Args:
        img_size, patch_size, in_chans, num_classes, embed_dim, depth, num_heads, mlp_ratio: as in timm; the defaults
            are ViT-Base's. dropout: after attention weights and MLPs.

    >>> ViT(8, 4, num_classes=10, embed_dim=16, depth=1, num_heads=2)(Tensor.ones(2, 3, 8, 8)).shape
    (2, 10)
    """

    @checked
    def __init__(
        self,
        img_size: int | Sequence[int] = 224,
        patch_size: int | Sequence[int] = 16,
        in_chans: int = 3,
        num_classes: int = 1000,
        embed_dim: int = 768,
        depth: int = 12,
        num_heads: int = 12,
        mlp_ratio: float = 4.0,
        dropout: float = 0.0,
    ) -> None:
        self.cls_token: Tensor = init.normal((1, 1, embed_dim), STD)
        self.patch_embed = PatchEmbed(img_size, patch_size, in_chans, embed_dim)
        self.pos_embed: Tensor = init.normal((1, self.patch_embed.num_patches + 1, embed_dim), STD)
        self.blocks = [ViTBlock(embed_dim, num_heads, mlp_ratio, dropout) for _ in range(depth)]
        self.norm = LayerNorm(embed_dim, eps=1e-6)
        self.head = Linear(embed_dim, num_classes)
        for m in self.modules():
            if isinstance(m, Linear):
                m.weight = init.normal(m.weight.shape, STD)
                m.bias = init.constant((m.out_features,), 0.0)

    def features(self, x: Tensor) -> Tensor:
        """The normalised tokens of images x (batch, in_chans, h, w): (batch, 1 + patches, embed_dim), the class token
        first.
        """
        patches = self.patch_embed(x)
        token = self.cls_token.expand(x.shape[0], 1, self.cls_token.shape[-1])
        x = Tensor.cat([token, patches], dim=1) + self.pos_embed
        for block in self.blocks:
            x = block(x)
        return self.norm(x)

    @checked
    def forward(self, x: Tensor) -> Tensor:
        """The logits (batch, num_classes) of images x (batch, in_chans, h, w)."""
        return self.head(self.features(x)[:, 0])
