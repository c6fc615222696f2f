"""A sharded model in training, which goes on from its checkpoint: prints the losses and a digest of the weights."""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path

import numpy as np

from anneal import distributed, nn
from anneal.tensor import Tensor, manual_seed
from anneal.training import Checkpoint, Training, decayed


class Sharded(Training):
    """A GPT of one layer, whose head shares its weights with the embedding."""

    def __init__(self) -> None:
        manual_seed(0)
        self.rng = np.random.default_rng(1)
        group = distributed.world()
        model = nn.GPT(vocab_size=11, block_size=8, n_layer=1, n_head=2, n_embd=6)
        nn.parallel.fully_shard(model, model.h, group)
        super().__init__(model, nn.AdamW(decayed(model.parameters(), 0.1), lr=0.01), steps=9, batch=4, clip=0.5)

    def next_batch(self) -> tuple[Tensor]:
        return (Tensor(self.rng.integers(0, 11, (4, 9)).astype(np.int32)),)

    def loss(self, x: Tensor) -> Tensor:
        return self.model.loss(x[:, :-1], x[:, 1:])


def main() -> None:
    folder, last, kept = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    distributed.init(timeout=60)
    training = Sharded()
    checkpoint = Checkpoint(training, folder, batch=4)
    losses = []
    for step in range(checkpoint.resume() + 1, last + 1):
        losses.append(training.step().item())
        if step <= kept:
            checkpoint.save(step)
    whole = nn.parallel.whole_state_dict(training.model)
    digest = hashlib.blake2b(b"".join([t.numpy().tobytes() for t in whole.values()]), digest_size=8).hexdigest()
    if training.group.rank == 0:
        print("FOUND " + json.dumps([losses, digest]), flush=True)


if __name__ == "__main__":
    main()
