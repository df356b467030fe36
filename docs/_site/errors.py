"""The page of errors, from the classes themselves."""

from metricdp import errors
from metricdp.cli._failures import MENDABLE

from .docstrings import items
from .markdown import code, table


def page():
    """Return one row for each error of the library, as Markdown."""
    found = {name: one for name, one in vars(errors).items() if name in errors.__all__ and isinstance(one, type)}
    rows = [
        [code(f"metricdp.{name}"), code(one.__base__.__name__), meaning(one), 2 if issubclass(one, MENDABLE) else 1]
        for name, one in found.items()
    ]
    return table(["error", "is a", "when", "exit code of commands"], rows)


def meaning(error):
    """Return the first sentence of an error, and what its fields hold."""
    fields = " ".join(f"`{name}`: {text}" for name, text in items(error.__doc__).items())
    return f"{error.__doc__.strip().splitlines()[0]} {fields}"
