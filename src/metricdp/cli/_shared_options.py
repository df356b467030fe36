"""Options that several commands share: a command gets them together, as one parameter."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, get_type_hints

__all__ = ["SharedOptions", "sharing"]

# By parameter: the option, and its default.
SharedOptions = Mapping[str, tuple[Any, Any]]

_Command = Callable[..., None]


def sharing(parameter: str, options: SharedOptions, gathered: Callable[..., Any]) -> Callable[[_Command], _Command]:
    """Return a decorator that gives a command options in place of one keyword-only parameter.

    The command gets what `gathered` makes of their values as that parameter.
    """

    def share(command: _Command) -> _Command:
        @functools.wraps(command)
        def expanded(**given: Any) -> None:
            chosen = {name: given.pop(name) for name in options}
            command(**given, **{parameter: gathered(**chosen)})

        hints = get_type_hints(command, include_extras=True)
        parameters: list[inspect.Parameter] = []
        for name, one in inspect.signature(command).parameters.items():
            if name == parameter:
                parameters += [
                    one.replace(name=shared, annotation=option, default=default)
                    for shared, (option, default) in options.items()
                ]
            else:
                parameters.append(one.replace(annotation=hints[name]))
        expanded.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        expanded.__annotations__ = {one.name: one.annotation for one in parameters} | {"return": None}
        return expanded

    return share
