"""GPT-2: its byte-level tokeniser."""

from .tokenizer import END_OF_TEXT, TextStream, Tokenizer
from .vocabulary import Vocabulary

__all__ = ["END_OF_TEXT", "TextStream", "Tokenizer", "Vocabulary"]
