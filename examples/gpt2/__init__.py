"""GPT-2: its byte-level tokeniser, its checkpoints, and how it goes on with a text."""

from .checkpoint import read_checkpoint, write_checkpoint
from .generate import Decoder, Sampling
from .tokenizer import END_OF_TEXT, TextStream, Tokenizer
from .vocabulary import Vocabulary

__all__ = [
    "END_OF_TEXT",
    "Decoder",
    "Sampling",
    "TextStream",
    "Tokenizer",
    "Vocabulary",
    "read_checkpoint",
    "write_checkpoint",
]
