"""Write a checkpoint of GPT-2 small's names, shapes and size, 548 MB, with random weights:

    python -m benchmarks.gpt2_checkpoint FOLDER [--vocabulary FOLDER]

For what needs the size and not the words: memory, speed, logits beside transformers. `--vocabulary` names a folder with
GPT-2's vocab.json and merges.txt, which are copied beside the weights; without it one of the same size is made up.
"""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from examples.gpt2.vocabulary import BYTE_OF_LETTER

VOCABULARY, CONTEXT, LAYERS, HEADS, WIDTH = 50257, 1024, 12, 12, 768


def weights(seed: int = 0) -> dict[str, np.ndarray]:
    """The tensors under the names of the published file, which has no prefix, no second name for the head,
    and masks.
    """
    random = np.random.default_rng(seed)

    def normal(*shape: int, std: float, mean: float = 0.0) -> np.ndarray:
        return random.standard_normal(shape, np.float32) * np.float32(std) + np.float32(mean)

    def norm(name: str) -> dict[str, np.ndarray]:
        return {f"{name}.weight": normal(WIDTH, std=0.1, mean=1.0), f"{name}.bias": normal(WIDTH, std=0.1)}

    def layer(name: str, inputs: int, outputs: int, std: float) -> dict[str, np.ndarray]:
        return {f"{name}.weight": normal(inputs, outputs, std=std), f"{name}.bias": normal(outputs, std=0.05)}

    # A few times as large as at first, when all logits are nearly the same; not so large that the layers amplify what
    # float32 rounds off, as random ones soon do, until two right programs differ in what they say.
    tensors = {"wte.weight": normal(VOCABULARY, WIDTH, std=0.1), "wpe.weight": normal(CONTEXT, WIDTH, std=0.05)}
    mask = np.tril(np.ones((1, 1, CONTEXT, CONTEXT), np.float32))
    for i in range(LAYERS):
        tensors |= (
            norm(f"h.{i}.ln_1") | layer(f"h.{i}.attn.c_attn", WIDTH, 3 * WIDTH, 0.05) | {f"h.{i}.attn.bias": mask}
        )
        tensors |= layer(f"h.{i}.attn.c_proj", WIDTH, WIDTH, 0.03) | norm(f"h.{i}.ln_2")
        tensors |= layer(f"h.{i}.mlp.c_fc", WIDTH, 4 * WIDTH, 0.05) | layer(f"h.{i}.mlp.c_proj", 4 * WIDTH, WIDTH, 0.03)
    return tensors | norm("ln_f")


def write(folder: Path, vocabulary: Path | None = None, seed: int = 0) -> None:
    """Weights, config.json for transformers, and a vocabulary."""
    folder.mkdir(parents=True, exist_ok=True)
    save_file(weights(seed), folder / "model.safetensors", {"format": "pt"})
    sizes = {"vocab_size": VOCABULARY, "n_positions": CONTEXT, "n_layer": LAYERS, "n_head": HEADS, "n_embd": WIDTH}
    config = {"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", **sizes}
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    if vocabulary is not None:
        for name in ("vocab.json", "merges.txt"):
            shutil.copyfile(vocabulary / name, folder / name)
        return
    ids, merges = dict(BYTE_OF_LETTER), []
    letters = sorted(BYTE_OF_LETTER)
    while len(ids) < VOCABULARY - 1:  # every pair of two letters, in order, is a token until there are enough
        one, two = letters[len(merges) // 256], letters[len(merges) % 256]
        ids[one + two] = len(ids)
        merges.append(f"{one} {two}")
    ids["<|endoftext|>"] = len(ids)
    (folder / "vocab.json").write_text(json.dumps(ids), encoding="utf-8")
    (folder / "merges.txt").write_text("\n".join(["#version: 0.2", *merges, ""]), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpt2_checkpoint", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--vocabulary", type=Path)
    args = parser.parse_args()
    write(args.folder, args.vocabulary)


if __name__ == "__main__":
    main()
