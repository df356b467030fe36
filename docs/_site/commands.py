"""The page of the command line, from the commands themselves."""

import click
import typer

from metricdp.cli import app
from metricdp.cli._commands import COMMANDS

from .markdown import code, table

# Options that every command has; they are listed once.
COMMON = ("verbose", "quiet", "help")


def page():
    """Return the options that all commands have, and a section for each command, as Markdown."""
    group = typer.main.get_command(app)
    context = context_of(group, None, "metricdp")
    sections = [table(["option", "meaning"], records(group, context))]
    for name in COMMANDS:
        _, command, _ = group.resolve_command(context, [name])
        sections.append(section(command, context_of(command, context, name), name, "##"))
    return "\n".join(sections)


def context_of(command, parent, name):
    """Return the context in which help is written; typer may bring its own copy of click."""
    return command.context_class(command, parent=parent, info_name=name)


def section(command, context, name, level):
    """Return a command's help: what it does, how it is called, its options; for a group, its commands."""
    parts = [f"{level} metricdp {name}", explained(command.help)]
    inner = getattr(command, "commands", None)
    if inner is None:
        own = records(command, context, without=COMMON)
        parts += [f"```text\n{command.get_usage(context)}\n```", table(["argument or option", "meaning"], own)]
    else:
        for part, one in inner.items():
            parts.append(section(one, context_of(one, context, part), f"{name} {part}", f"{level}#"))
    return "\n\n".join(parts) + "\n"


def explained(text):
    """Return the help of a command without marks for terminals."""
    return click.unstyle((text or "").replace("\b", "")).strip()


def records(command, context, without=()):
    """Yield how each argument and option is written, and what it means."""
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record is not None and parameter.name not in without:
            yield code(record[0]), explained(record[1])
