"""The two tokenisers that are compared, and where their files are."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from tokenizers import AddedToken, Tokenizer as Reference
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel

from examples.gpt2 import END_OF_TEXT, Tokenizer

DATA = Path(__file__).parent / "data"


def ours(folder: Path = DATA) -> Tokenizer:
    return Tokenizer.read(folder / "vocab.json", folder / "merges.txt")


def reference(folder: Path = DATA) -> Reference:
    """Hugging Face's, set up as its GPT-2 is."""
    return build(BPE.from_file(str(folder / "vocab.json"), str(folder / "merges.txt")), [END_OF_TEXT])


def build(model: BPE, special: Iterable[str]) -> Reference:
    tokeniser = Reference(model)
    tokeniser.pre_tokenizer = ByteLevel(add_prefix_space=False)
    tokeniser.decoder = ByteLevelDecoder()
    tokeniser.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in special])
    return tokeniser
