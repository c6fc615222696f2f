"""The commands: a file each, with its flags, which is imported when the command is wanted, and a line each for help."""

from __future__ import annotations

__all__ = ["COMMANDS"]

# Help lists them in this order. The lines stand here so that help builds no command; tests hold them against the files.
COMMANDS = {
    "doctor": "Say which devices this machine has, and what to do if none.",
    "train": "Train a model of examples/ and show what it learnt.",
    "graph": "Print the graph of a training step, or what a pass makes of it.",
    "kernels": "Print the fused kernels of a model, with their cost or times.",
    "explain": "Print the rules that concern an op, or those that fire for a model.",
    "web": "Serve the studio, a page that shows all of it, to your browser.",
    "viz": "Open the studio at the graph of a model.",
    "record": "Run your script, and list or keep every plan that it runs.",
    "check": "Hold kernels and values beside float64, and name what differs.",
    "gpt2": "GPT-2 small, from its published checkpoint or another.",
    "run": "Run a model that has learnt already.",
    "onnx": "Other people's models: ONNX files.",
    "cache": "Look into, and tidy, what was compiled and kept on disk.",
}
