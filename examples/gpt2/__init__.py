"""GPT-2: its byte-level tokeniser, and its checkpoints."""

from .checkpoint import read_checkpoint, write_checkpoint
from .tokenizer import END_OF_TEXT, TextStream, Tokenizer
from .vocabulary import Vocabulary

__all__ = ["END_OF_TEXT", "TextStream", "Tokenizer", "Vocabulary", "read_checkpoint", "write_checkpoint"]
