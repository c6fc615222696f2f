"""The files that may be downloaded, each pinned to one content."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Asset:
    """A file to download: its source, and its exact contents by size and hash.

    `name` is also its path below the folder of assets: `gpt2/vocab.json`.
    """

    name: str
    url: str
    sha256: str
    bytes: int
    about: str


def by_hand(asset: Asset, path: Path) -> str:
    """Advice if there is no download, as the end of a sentence."""
    return f"put the file at {path} yourself: {asset.bytes:,} bytes, SHA-256 {asset.sha256}, from {asset.url}"


def _gpt2(file: str, sha256: str, size: int, about: str) -> Asset:
    # A revision, not a branch: what a branch holds may change, and then no download would pass any more.
    repository, revision = "openai-community/gpt2", "607a30d783dfa663caf39e06633721c8d4cfcd7e"
    url = f"https://huggingface.co/{repository}/resolve/{revision}/{file}"
    return Asset(f"gpt2/{file}", url, sha256, size, about)


_PINNED = (
    _gpt2(
        "model.safetensors",
        "248dfc3911869ec493c76e65bf2fcf7f615828b0254c12b473182f0f81d3a707",
        548_105_171,
        "GPT-2 small: 124 million weights in float32",
    ),
    _gpt2(
        "vocab.json",
        "196139668be63f3b5d6574427317ae82f612a97c5d1cdaf36ed2256dbf636783",
        1_042_301,
        "GPT-2's tokens and their numbers",
    ),
    _gpt2(
        "merges.txt",
        "1ce1664773c50f3e0cc8842619a93edc4624525b728b188a9e0be33b7726adc5",
        456_318,
        "the merges that make GPT-2's tokens, in order",
    ),
    Asset(
        "cifar10/cifar-10-binary.tar.gz",
        "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
        "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
        170_052_171,
        "CIFAR-10: 60,000 photographs of ten classes, 32x32",
    ),
)

ASSETS = {asset.name: asset for asset in _PINNED}
