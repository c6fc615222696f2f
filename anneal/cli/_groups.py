"""Commands whose help says all that it has to say, at every width."""

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand, TyperGroup

__all__ = ["Group", "ModelCommand"]


class Group(TyperGroup):
    """A group that lists its commands with their whole first sentences."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the list, folded where it is too wide."""
        commands = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl([(name, c.get_short_help_str(1000)) for name, c in commands if c is not None])


class ModelCommand(TyperCommand):
    """A command whose help lists the models of examples/."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the models before the options."""
        from anneal.training import MODELS

        with formatter.section("Models"):
            formatter.write_dl(list(MODELS.items()))
        super().format_options(ctx, formatter)
