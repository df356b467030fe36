"""Lists such as "cells : cells along every axis." in docstrings become definition lists."""

import re

ITEM = re.compile(r"^(\w+(?:, \w+)*) : (\S.*)$")


def listed(lines):
    """Return the lines of a docstring with "name : meaning" as definitions, up to its first section."""
    end = next((i for i in range(1, len(lines)) if re.fullmatch(r"-{3,}", lines[i].strip())), len(lines) + 1) - 1
    found, inside = [], False
    for line in lines[:end]:
        item = ITEM.match(line)
        if item:
            if not inside and found and found[-1].strip():
                found.append("")
            names = ", ".join(f"``{name}``" for name in item[1].split(", "))
            found += [names, f"    {item[2]}"]
            inside = True
        else:
            if inside and line.strip() and not line.startswith(" "):
                found += [""] if found[-1].strip() else []
                inside = False
            found.append(line)
    return found + lines[end:]


def process(_app, _what, _name, _object, _options, lines):
    lines[:] = listed(lines)


def setup(app):
    app.connect("autodoc-process-docstring", process, priority=100)  # before numpydoc
    return {"parallel_read_safe": True}
