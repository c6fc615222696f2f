"""A Llama from a file of llama2.c tells a story.

    anneal run llama2c stories15M.bin "Once upon a time"            (tokenizer.bin beside it)

llama2.c (Karpathy, 2023) keeps a model as seven integers and then all weights, float32, in a fixed order; it is read
into nn.Llama as it lies there. Its tokeniser joins pieces of text, each with a score: of all neighbours that are a
piece together those of the highest score are joined first. Generation reads one token at a time: what later tokens need
of the earlier ones are their keys and values, which are kept, so a step costs the same wherever in the story it is.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from anneal import files, nn
from anneal.errors import DataError, UserError
from anneal.tensor import Tensor, jit

from .gpt2.tokenizer import Pair, merge

START, END = 1, 2  # the tokens before and after a text
BYTES = 3  # the token of byte b is BYTES + b
BYTE = re.compile(rb"<0x([0-9A-Fa-f]{2})>")  # and what it is called


def read_model(path: Path) -> nn.Llama:
    """The model of a checkpoint in llama2.c's first format. DataError names the file and what is wrong with it."""
    try:
        with files.opened(path) as f:
            data = np.memmap(f, np.uint8, "r")
    except (OSError, ValueError) as error:
        raise DataError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if len(data) < 28:
        raise DataError(f"{path} has {len(data)} bytes: no llama2.c checkpoint, which begins with seven integers")
    dim, hidden, layers, heads, kv_heads, vocabulary, length = struct.unpack("<7i", data[:28].tobytes())
    tied, vocabulary = vocabulary > 0, abs(vocabulary)
    sizes = (dim, hidden, layers, heads, kv_heads, vocabulary, length)
    if min(sizes) < 1 or max(sizes) > 1 << 24 or dim % heads or heads % kv_heads or dim // heads % 2:
        raise DataError(
            f"{path} is no llama2.c checkpoint of the first format: it begins with {sizes}, which should be width, "
            "MLP, layers, heads, heads of keys, vocabulary and context (export.py --version 0 writes it)"
        )
    head, keys = dim // heads, dim // heads * kv_heads
    # Each layer's matrices of a kind stand together; 32 bits of angles, which a model needs no more, before the last.
    stacks = {
        "attention_norm": (dim,), "attention.wq": (dim, dim), "attention.wk": (keys, dim), "attention.wv": (keys, dim),
        "attention.wo": (dim, dim), "ffn_norm": (dim,), "feed_forward.w1": (hidden, dim),
        "feed_forward.w2": (dim, hidden), "feed_forward.w3": (hidden, dim),
    }  # fmt: skip
    order: list[tuple[str, tuple[int, ...]]] = [("tok_embeddings.weight", (vocabulary, dim))]
    order += [(name, (layers, *shape)) for name, shape in stacks.items()]
    order += [("norm.weight", (dim,)), ("angles", (length * head,))]
    order += [] if tied else [("output.weight", (vocabulary, dim))]
    wanted = 28 + 4 * sum(int(np.prod(shape)) for _, shape in order)
    if wanted != len(data):
        raise DataError(f"{path} has {len(data):,} bytes; its header, {sizes}, asks for {wanted:,}")
    state: dict[str, np.ndarray] = {}
    at = 28
    for name, shape in order:
        size = 4 * int(np.prod(shape))
        values = data[at : at + size].view("<f4").reshape(shape)
        at += size
        if name in stacks:
            state |= {f"layers.{i}.{name}.weight": values[i] for i in range(layers)}
        elif name != "angles":
            state[name] = values
    if tied:
        state["output.weight"] = state["tok_embeddings.weight"]
    config = nn.LlamaConfig(vocabulary, dim, layers, heads, kv_heads, hidden, length, tie_weights=tied)
    with nn.init.skipped():
        model = nn.Llama(config)
    model.load_state_dict(state)
    return model


class Words:
    """llama2.c's tokeniser: pieces of text with scores."""

    def __init__(self, pieces: Sequence[bytes], scores: Sequence[float]) -> None:
        self.pieces, self.scores = list(pieces), list(scores)
        self.number = {piece: i for i, piece in reversed(list(enumerate(pieces)))}
        # llama2.c joins no pair to a piece of a lower score, or of one that is no number
        places = {score: i for i, score in enumerate(sorted({s for s in scores if s > -1e10}, reverse=True))}
        self.ranks = [places.get(score) for score in scores]

    @classmethod
    def read(cls, path: Path, count: int) -> Words:
        """The `count` pieces of a tokenizer.bin. DataError names the file and what is wrong with it."""
        try:
            with files.opened(path) as f:
                data = f.read()
        except OSError as error:
            raise DataError(
                f"{path} cannot be read ({error.strerror}); a model's tokenizer.bin lies beside it"
            ) from None
        if count <= END:
            raise DataError(
                f"{path}: the model knows {count} tokens, and the begin and the end of a text are tokens too"
            )
        pieces, scores, at = [], [], 4  # after the length of the longest piece
        try:
            for _ in range(count):
                score, size = struct.unpack_from("<fi", data, at)
                at += 8
                if not 0 <= size <= len(data) - at:
                    raise struct.error
                pieces.append(data[at : at + size])
                scores.append(score)
                at += size
        except struct.error:
            raise DataError(f"{path} ends after {len(pieces)} of the model's {count} tokens") from None
        return cls(pieces, scores)

    def encode(self, text: str) -> list[int]:
        """START and the tokens of a text: characters, else bytes; then neighbours are joined, the best pair first.

        The text may carry bytes that are no UTF-8 as Python's command line does. UserError for a byte that has no
        token.
        """
        ids = [START]
        for character in f" {text}" if text else "":  # a text begins like a word
            piece = character.encode("utf-8", "surrogateescape")
            ids += [self.number[piece]] if piece in self.number else [self.byte(byte) for byte in piece]
        pieces, number, ranks = self.pieces, self.number, self.ranks

        def rank_of(pair: Pair) -> int | None:
            joined = number.get(pieces[pair[0]] + pieces[pair[1]])
            return None if joined is None else ranks[joined]

        return merge(ids, rank_of, lambda pair: number[pieces[pair[0]] + pieces[pair[1]]])

    def byte(self, byte: int) -> int:
        """The token of a byte that is part of no character among the tokens."""
        token = BYTES + byte
        if token >= len(self.pieces) or self.pieces[token] != b"<0x%02X>" % byte:
            raise UserError(
                f"the prompt has the byte 0x{byte:02x}, for which this tokeniser of {len(self.pieces)} tokens has "
                "none; "
                "leave it out"
            )
        return token

    def piece(self, token: int, before: int) -> bytes:
        """What a token says: without the blank at the start of a text, and <0x0A> as the byte that it names."""
        piece = self.pieces[token]
        if before == START and piece.startswith(b" "):
            piece = piece[1:]
        byte = BYTE.fullmatch(piece)
        return bytes([int(byte[1], 16)]) if byte else piece


@dataclass
class Sampling:
    """How a token is chosen: at temperature 0 the likeliest; else among the likeliest that have `top_p` together."""

    temperature: float = 1.0
    top_p: float = 0.9
    seed: int = 1

    def __post_init__(self) -> None:
        if not (0 <= self.temperature < float("inf") and 0 < self.top_p <= 1):
            raise UserError(f"temperature ({self.temperature}) is 0 or more, and top_p ({self.top_p}) in (0, 1]")
        self.random = np.random.default_rng(self.seed)

    def choose(self, logits: np.ndarray) -> int:
        if self.temperature == 0:
            return int(logits.argmax())
        chances = np.exp((logits - logits.max()).astype(np.float64) / self.temperature)
        chances /= chances.sum()
        order = np.argsort(-chances, kind="stable")
        likely = order[: int(np.searchsorted(np.cumsum(chances[order]), self.top_p)) + 1]
        return int(self.random.choice(likely, p=chances[likely] / chances[likely].sum()))


class Story:
    """A model at work on one text."""

    def __init__(self, model: nn.Llama) -> None:
        self.model, self.reader = model, nn.Reader(model)
        self.go_on = jit(self.reader.go_on)

    def read(self, token: int, place: int) -> Tensor:
        """Logits of what follows a token at its place."""
        blocks = self.reader.blocks.bind(place // self.reader.block + 1)
        return self.go_on(Tensor(np.array([token], np.int32)), Tensor(np.array([place], np.int32)), blocks)

    def tell(self, given: Sequence[int], most: int, sampling: Sampling) -> Iterator[int]:
        """The tokens after START: those given, then what the model makes of them, `most` in all or until a
        text ends.
        """
        token = given[0]
        for place in range(min(most, self.model.config.max_seq_len)):
            logits = self.read(token, place)
            token = given[place + 1] if place + 1 < len(given) else sampling.choose(logits.numpy())
            if token in (START, END):
                return
            yield token
