"""Compare a checkpoint's logits and greedy text with those of transformers, which no test needs:

    python -m tests.examples.gpt2.agree FOLDER --device webgpu

A greedy continuation is made with the cache of keys and values. Then this model and transformers' read the whole text
at once: each of them, without a cache, must have chosen the same tokens, and the logits are compared, also with those
in float64.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np

from anneal.tensor import Tensor, no_grad, set_default_device
from examples.gpt2 import Decoder, Sampling, read_checkpoint


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.examples.gpt2.agree", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--device", choices=("cpu", "webgpu"), default="cpu")
    parser.add_argument("--tokens", type=int, default=200)
    args = parser.parse_args()
    set_default_device(args.device)
    model = read_checkpoint(args.folder)
    given = np.random.default_rng(0).integers(0, model.config.vocab_size, 8).tolist()
    said = list(Decoder(model, Sampling(greedy=True)).generate(given, args.tokens))
    text = np.array([given + said[:-1]], np.int32)
    with no_grad():
        ours = model(Tensor(text)).numpy()[0]

    import torch
    from transformers import GPT2LMHeadModel

    with torch.no_grad():
        reference = GPT2LMHeadModel.from_pretrained(args.folder, dtype=torch.float32).eval()
        tokens = torch.from_numpy(text).long()
        theirs = reference(tokens).logits[0].numpy()
        exact = reference.double()(tokens).logits[0].numpy()
    last = len(given) - 1
    two = np.sort(theirs[last:], -1)[:, -2:]
    report = {
        "device": args.device,
        "tokens": len(said),
        "distinct_tokens": len(set(said)),
        "same_without_cache": ours[last:].argmax(-1).tolist() == said,
        "same_as_transformers": theirs[last:].argmax(-1).tolist() == said,
        "largest_difference": float(np.abs(ours - theirs).max()),
        "ours_to_float64": float(np.abs(ours - exact).max()),
        "theirs_to_float64": float(np.abs(theirs - exact).max()),
        "largest_logit": float(np.abs(theirs).max()),
        "smallest_lead_of_a_choice": float((two[:, 1] - two[:, 0]).min()),
    }
    print(json.dumps(report))


if __name__ == "__main__":
    main()
