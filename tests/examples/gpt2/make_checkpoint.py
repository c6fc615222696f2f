"""Write data/tiny/ anew with transformers and torch, which no test needs.

`python -m tests.examples.gpt2.make_checkpoint`. A GPT-2 of two blocks with random weights, as transformers saves it;
expected.npz holds tokens, the logits that transformers computes for them, and a greedy continuation of the first row's
first eight tokens.
"""

from __future__ import annotations

import numpy as np

from tests.examples.gpt2.helpers import DATA

SIZES = {"vocab_size": 96, "n_positions": 32, "n_embd": 32, "n_layer": 2, "n_head": 4}


def main() -> None:
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(11)
    model = GPT2LMHeadModel(GPT2Config(**SIZES, bos_token_id=95, eos_token_id=95)).eval()
    with torch.no_grad():
        # As initialised, the logits would be nearly the same for all tokens, and every bias 0.
        for name, p in model.named_parameters():
            p.normal_(1.0 if "ln_" in name and name.endswith("weight") else 0.0, 0.3)
        tokens = torch.randint(0, SIZES["vocab_size"], (2, SIZES["n_positions"]))
        logits = model(tokens).logits
        greedy = tokens[:1, :8]
        while greedy.shape[1] < SIZES["n_positions"]:
            greedy = torch.cat([greedy, model(greedy).logits[:, -1:].argmax(-1)], 1)
    model.save_pretrained(DATA / "tiny")
    (DATA / "tiny" / "generation_config.json").unlink(missing_ok=True)
    np.savez(
        DATA / "tiny" / "expected.npz",
        tokens=tokens.numpy().astype(np.int32),
        logits=logits.numpy(),
        greedy=greedy.numpy().astype(np.int32),
    )


if __name__ == "__main__":
    main()
