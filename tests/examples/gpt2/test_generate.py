"""Decoding with kept keys and values: what transformers says, what the model says without them, and one plan for all
places.
"""

from __future__ import annotations

import numpy as np
import pytest

from anneal import nn, schedule
from anneal.backend import get_device
from anneal.errors import UserError
from anneal.runtime import default_device, observed
from anneal.tensor import Tensor, manual_seed, no_grad, set_default_device
from examples.gpt2 import Decoder, Sampling, read_checkpoint
from tests.examples.gpt2.helpers import DATA

TINY = DATA / "tiny"
GREEDY = Sampling(greedy=True)

with np.load(TINY / "expected.npz") as _file:
    EXPECTED = _file["greedy"][0].tolist()


def made(vocab: int = 29, context: int = 224, seed: int = 5) -> nn.GPT:
    manual_seed(seed)
    model = nn.GPT(vocab_size=vocab, block_size=context, n_layer=2, n_head=2, n_embd=16)
    with no_grad():  # as initialised, the logits would be nearly the same for all tokens
        for p in model.parameters():
            p.assign(p * 12 if p.ndim > 1 else p)
    return model.realize()


def check_without_cache(model: nn.GPT, tokens: list[int], found: list[int]) -> None:
    """The model, reading the whole text at once, would have chosen each of these tokens after those before it."""
    with no_grad():
        choice = model(Tensor([(tokens + found)[: model.config.block_size]])).numpy()[0].argmax(-1)
    assert found == choice[len(tokens) - 1 :][: len(found)].tolist()


def test_a_greedy_continuation_is_that_of_transformers(device: str) -> None:
    for given in (1, 8, 31):
        decoder = Decoder(read_checkpoint(TINY), GREEDY)
        found = list(decoder.generate(EXPECTED[:given], 32 - given))
        if given >= 8:
            assert found == EXPECTED[given:]
        assert len(found) == 32 - given


def test_two_hundred_tokens_are_the_same_with_and_without_the_cache(device: str) -> None:
    model = made()
    tokens = [3, 1, 4, 1, 5]
    found = list(Decoder(model, GREEDY).generate(tokens, 200))
    assert len(found) == 200
    assert len(set(found)) > 5
    check_without_cache(model, tokens, found)


@pytest.mark.parametrize("given", [1, 63, 64, 65, 224])
def test_prompts_of_any_length(given: int) -> None:
    model = made()
    tokens = np.random.default_rng(given).integers(0, 29, given).tolist()
    found = list(Decoder(model, GREEDY).generate(tokens, 6))
    assert len(found) == min(6, 225 - given)
    check_without_cache(model, tokens, found)


def test_the_context_ends_the_text() -> None:
    decoder = Decoder(made(context=16), GREEDY)
    assert len(list(decoder.generate([1, 2, 3], 100))) == 14
    with pytest.raises(UserError, match="context of 16 tokens is full"):
        decoder.step()


def test_the_token_that_ends_a_text_is_not_given() -> None:
    every = list(Decoder(made(), GREEDY).generate([7, 7], 30))
    end = every[-1]
    assert list(Decoder(made(), GREEDY).generate([7, 7], 30, end)) == every[: every.index(end)]


def test_a_thousand_tokens_take_one_plan_a_phase_and_no_more_memory() -> None:
    plans: list[schedule.Plan] = []
    decoder = Decoder(made(context=1024), GREEDY)
    memory = []
    with observed(lambda step: plans.append(step.plan)):
        for _ in decoder.generate([1], 1000):
            memory.append(get_device(default_device()).asked)
        assert len(memory) == 1000
        list(decoder.generate([2] * 500, 3))
    assert len(set(plans)) == 2  # one for every prompt, one for every place
    assert memory[-1] == memory[5]


def test_a_step_is_few_kernels(webgpu: str) -> None:
    set_default_device(webgpu)
    try:
        decoder = Decoder(made(vocab=5000, context=128), GREEDY)
        list(decoder.generate([1], 3))
    finally:
        set_default_device(None)
    (captured,) = decoder._step.captures.values()
    assert captured is not None
    # A block: the norm with queries, keys and values in their places; scores; softmax with values; the product that
    # joins the heads; the norm with the wide layer; the narrow one. Beside that: the embedding, its norm, the last norm
    # with the logits, the choice, the place of the next token.
    assert sum(len(run.plan.calls) for run in captured.launches) <= 6 * 2 + 5


# -- chance ------------------------------------------------------------------------------------------------------------


def drawn(sampling: Sampling, count: int = 40) -> list[int]:
    return list(Decoder(made(), sampling).generate([3, 1, 4], count))


def test_a_seed_gives_the_same_text_again(device: str) -> None:
    for top_k in (0, 5):
        first = drawn(Sampling(top_k=top_k, seed=3))
        assert first == drawn(Sampling(top_k=top_k, seed=3)) != drawn(Sampling(top_k=top_k, seed=4))


def test_what_makes_the_choice_certain_makes_it_greedy() -> None:
    assert drawn(Sampling(top_k=1)) == drawn(Sampling(temperature=1e-3)) == drawn(GREEDY)


def test_top_k_takes_none_but_the_likeliest() -> None:
    model = made()
    tokens = [3, 1, 4]
    said = tokens + list(Decoder(model, Sampling(top_k=3, temperature=5.0)).generate(tokens, 60))
    with no_grad():
        logits = model(Tensor([said])).numpy()[0]
    ranks = [int((row > row[token]).sum()) for row, token in zip(logits[2:-1], said[3:], strict=True)]
    assert set(ranks) == {0, 1, 2}


def test_a_vocabulary_smaller_than_the_table() -> None:
    found = Decoder(made(), Sampling(top_k=0, temperature=50.0), words=4).generate([1, 2], 60)
    assert set(found) == {0, 1, 2, 3}


@pytest.mark.parametrize(
    "options, message",
    [({"temperature": 0.0}, "temperature"), ({"temperature": float("nan")}, "temperature"), ({"top_k": -1}, "top_k")],
)
def test_a_sampling_that_is_none(options: dict[str, float], message: str) -> None:
    with pytest.raises(UserError, match=message):
        Sampling(**options)  # type: ignore[arg-type]


@pytest.mark.parametrize("given", [0, 17])
def test_a_prompt_that_does_not_fit(given: int) -> None:
    with pytest.raises(UserError, match=f"1 to 16 tokens.*this one has {given}"):
        Decoder(made(context=16)).prefill([1] * given)
