"""Write data/ anew from GPT-2's own files: `python -m tests.examples.gpt2.make_fixture FOLDER`.

The vocabulary is cut to the bytes, the first merges, and what the texts need, under the ids of the full one: leaving
out a merge that a text does not use changes nothing for that text. The golden ids are those of `tokenizers` with the
full files.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from examples.gpt2.vocabulary import BYTE_OF_LETTER, END_OF_TEXT
from tests.examples.gpt2.helpers import DATA, reference
from tests.examples.gpt2.texts import TEXTS

FIRST_MERGES = 2000


def main(folder: Path) -> None:
    vocab: dict[str, int] = json.loads((folder / "vocab.json").read_text(encoding="utf-8"))
    merges = (folder / "merges.txt").read_text(encoding="utf-8").splitlines()[1:]
    tokeniser = reference(folder)
    golden = [(text, tokeniser.encode(text).ids) for text in TEXTS]

    line_of = {line.replace(" ", ""): i for i, line in enumerate(merges)}
    token_of = {number: token for token, number in vocab.items()}
    kept, todo = set(range(FIRST_MERGES)), [token_of[i] for _, ids in golden for i in ids]
    while todo:  # a token, and the parts that its merge needs
        i = line_of.get(todo.pop())
        if i is not None and i not in kept:
            kept.add(i)
            todo += merges[i].split()

    lines = [merges[i] for i in sorted(kept)]
    tokens = [*BYTE_OF_LETTER, *(line.replace(" ", "") for line in lines), END_OF_TEXT]
    DATA.mkdir(exist_ok=True)
    write("vocab.json", json.dumps({t: vocab[t] for t in sorted(tokens, key=vocab.__getitem__)}, ensure_ascii=False))
    write("merges.txt", "\n".join(["#version: 0.2", *lines, ""]))
    write("golden.json", "[\n" + ",\n".join(json.dumps({"text": text, "ids": ids}) for text, ids in golden) + "\n]\n")


def write(name: str, text: str) -> None:
    (DATA / name).write_text(text, encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
