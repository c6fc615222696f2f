"""The same GPT and the same AdamW step written for each peer, as its users would write it."""
