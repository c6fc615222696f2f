"""GPT-2 goes on with a text: the prompt is read at once, then token after token, each read once.

What a later token needs of the earlier ones are their keys and values in every block; those are kept. The tokens, their
choice and the place in the text stay on the device too, so that nothing has to be waited for between two tokens: `step`
is one captured set of kernels for every place, and whoever wants to know what was said looks now and then. How many
keys there are is a Variable, in steps of 64: the few behind the place are masked.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from time import perf_counter

import numpy as np

from anneal import nn
from anneal.errors import UserError
from anneal.tensor import Tensor, jit, no_grad, realize
from anneal.tensor.random import Generator, categorical
from anneal.uop import UOp

__all__ = ["Decoder", "Sampling"]

LOOK = 0.03  # seconds between two looks at what was said
AHEAD = 64  # tokens at most


@dataclass(frozen=True)
class Sampling:
    """How a token is chosen: the likeliest (`greedy`), or by chance among the `top_k` likeliest (0: among all)."""

    greedy: bool = False
    temperature: float = 1.0
    top_k: int = 40
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.temperature < float("inf"):
            raise UserError(
                f"a temperature is a number above 0, not {self.temperature}; greedy=True takes the likeliest token"
            )
        if self.top_k < 0:
            raise UserError(f"top_k is a number of tokens, or 0 for all of them, not {self.top_k}")


class Decoder:
    """A model at work on one text. `words`: how many tokens the vocabulary has, where the model's table has more.
    `watched`: how many of the likeliest tokens `choices` tells for each place; then every token is waited for.

    >>> model = nn.GPT(vocab_size=7, block_size=16, n_layer=1, n_head=2, n_embd=8)
    >>> decoder = Decoder(model, Sampling(greedy=True))
    >>> len(list(decoder.generate([1, 2, 3], 5)))
    5
    """

    def __init__(
        self, model: nn.GPT, sampling: Sampling | None = None, words: int | None = None, watched: int = 0
    ) -> None:
        c = model.config
        self.model, self.reader = model, nn.Reader(model)
        self.sampling = sampling or Sampling()
        self.words = words or c.vocab_size
        self.random = Generator(self.sampling.seed)
        self.temperature = Tensor([self.sampling.temperature])
        self.length = c.block_size
        self.read_so_far = 0
        self.text = Tensor.zeros(c.block_size + 1, dtype="int32")  # what was read, and after it what was said last
        self.position = Tensor.zeros(1, dtype="int32")  # of the token to be read next
        self.watched = watched
        # the chances of the token that was said last and of the likeliest, and which these are
        self.likely, self.candidates = Tensor.zeros(watched + 1), Tensor.zeros(max(1, watched), dtype="int32")
        realize(self._state())
        self._read, self._step = jit(self._read_prompt), jit(self._read_token)

    def _state(self) -> list[Tensor]:
        seen = [self.likely, self.candidates] if self.watched else []
        return [self.text, self.position, *self.reader.keys, *self.reader.values, *seen]

    def prefill(self, tokens: Sequence[int]) -> None:
        """Read a prompt, and say the first token after it.

        Raises UserError for a prompt that is empty or longer than the model's context.
        """
        n = len(tokens)
        if not 0 < n <= self.length:
            raise UserError(f"a prompt has 1 to {self.length} tokens, which is this model's context; this one has {n}")
        whole = np.zeros(self.length, np.int32)
        whole[:n] = tokens
        self._read(Tensor(whole), Tensor(np.array([n], np.int32)), self._reading(n))
        self.read_so_far = n

    def step(self) -> None:
        """Read the token that was said last, and say the next. Nothing is waited for. UserError where the
        context ends.
        """
        if self.read_so_far == self.length:
            raise UserError(f"the context of {self.length} tokens is full; begin a new text with prefill()")
        self._step(self._reading(self.read_so_far + 1))
        self.read_so_far += 1

    def _reading(self, tokens: int) -> UOp:
        """How many blocks of keys so many tokens take."""
        return self.reader.blocks.bind(-(-tokens // self.reader.block))

    @no_grad()
    def _read_prompt(self, whole: Tensor, count: Tensor, blocks: UOp) -> Tensor:
        """Read whole blocks from the start, of which `count` tokens are the prompt, and say the first token after."""
        self.text[: self.length] = whole
        self.position.assign(count)
        self._say(self.reader.begin(whole, count, blocks), count)
        realize(self._state())
        return self.position

    @no_grad()
    def _read_token(self, blocks: UOp) -> Tensor:
        """Read one token among the keys of so many blocks, and say the next."""
        at = self.position
        self._say(self.reader.go_on(self.text[at], at, blocks), at + 1)
        self.position.assign(at + 1)
        realize(self._state())
        return self.position

    def _say(self, logits: Tensor, place: Tensor) -> None:
        """Choose the token that follows, and write it down."""
        logits = logits[: self.words]
        token = self._choose(logits, self.random.at(place))
        self.text.assign(self.text.update_slice(token.reshape(1), (place,)))
        if self.watched:
            chances = (logits / self.temperature).softmax(-1)
            likely, tokens = chances.topk(self.watched)
            self.likely.assign(chances[token.reshape(1)].cat(likely))
            self.candidates.assign(tokens.cast("int32"))

    def choices(self) -> tuple[float, list[tuple[int, float]]]:
        """The chance that the token said last had, and the likeliest tokens at its place with theirs."""
        chance, *likely = self.likely.tolist()
        return chance, list(zip(self.candidates.tolist(), likely))

    def _choose(self, logits: Tensor, random: Generator) -> Tensor:
        s = self.sampling
        if s.greedy:
            return logits.argmax()
        if 0 < s.top_k < self.words:
            likely, tokens = logits.topk(s.top_k)
            return tokens[categorical(likely / self.temperature, generator=random)]
        return categorical(logits / self.temperature, generator=random)

    def generate(self, tokens: Sequence[int], most: int, end: int | None = None) -> Iterator[int]:
        """Up to `most` tokens that follow a prompt, each some while after it was said.

        It ends earlier after the token `end`, which is not given, and where the context ends.
        """
        self.prefill(tokens)
        given, said, found = len(tokens), 1, 0
        most = min(most, self.room(given))
        while found < most:
            begun = perf_counter()
            # the first one is looked at when it is there, as is each where a step takes longer than a look is worth
            ahead = 0 if self.watched else AHEAD
            while said < most and (said == found or (found and said - found < ahead and perf_counter() - begun < LOOK)):
                self.step()
                said += 1
            for token in self.text.numpy()[given + found : given + said].tolist():
                if token == end:
                    return
                found += 1
                yield token

    def room(self, given: int) -> int:
        """How many tokens can follow a prompt of `given`: the last one is said and not read."""
        return self.length + 1 - given
