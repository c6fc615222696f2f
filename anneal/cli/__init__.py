"""The `anneal` command. Its parts import what they run only when they run it, so that help is instant."""

from anneal.cli._app import main

__all__ = ["main"]
