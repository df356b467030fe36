"""What docstrings of the library have beside numpydoc's sections.

Lists such as "cells : cells along every axis." before the first section, sections called "Guarantee", and |x − y|.
"""

import inspect
import re

from numpydoc.docscrape import NumpyDocString

ITEM = re.compile(r"^(\w+(?:, \w+)*) : (\S.*)$")
UNDERLINE = re.compile(r"-{3,}")


def split(lines):
    """Return the lines up to the first section of a docstring, and the rest."""
    underlined = (i for i in range(1, len(lines)) if UNDERLINE.fullmatch(lines[i].strip()))
    end = next(underlined, len(lines) + 1) - 1
    return lines[:end], lines[end:]


def items(text):
    """Return what a docstring says of each name, in the order in which they come."""
    found, names = {}, []
    for line in split(inspect.cleandoc(text).splitlines())[0]:
        item = ITEM.match(line)
        if item:
            names = item[1].split(", ")
            found |= dict.fromkeys(names, item[2])
        elif names and line.startswith(" "):
            found |= {name: f"{found[name]} {line.strip()}" for name in names}
        else:
            names = []
    return found


def as_definitions(lines):
    """Return the lines of a docstring in which such a list is one that docutils reads as definitions."""
    found, inside = [], False
    head, rest = split(lines)
    for line in head:
        item = ITEM.match(line)
        if item:
            found += [""] if found and found[-1].strip() and not inside else []
            found += [", ".join(f"``{name}``" for name in item[1].split(", ")), f"    {item[2]}"]
        else:
            found.append(line)
        inside = bool(item) or (inside and line.startswith(" "))
    return found + rest


def split_section(lines, head):
    """Return a docstring without the section of that name, and the lines of the section."""
    heads = [i for i in range(len(lines) - 1) if lines[i].strip() and UNDERLINE.fullmatch(lines[i + 1].strip())]
    start = next((i for i in heads if lines[i].strip() == head), len(lines))
    end = next((i for i in heads if i > start), len(lines))
    return lines[:start] + lines[end:], lines[start + 2 : end]


def without_substitutions(lines):
    """Return lines in which |…| are bars, up to the examples."""
    text, examples = split_at(lines, "Examples")
    return [line.replace("|", r"\|") for line in text] + examples


def split_at(lines, head):
    """Return the lines before a section, and from it on."""
    at = next((i for i, line in enumerate(lines) if line.strip() == head), len(lines))
    return lines[:at], lines[at:]


_GUARANTEES = {}


def before_numpydoc(_app, _what, name, _object, _options, lines):
    rest, guarantee = split_section(without_substitutions(as_definitions(lines)), "Guarantee")
    lines[:] = rest
    _GUARANTEES[name] = guarantee


def after_numpydoc(_app, _what, name, _object, _options, lines):
    guarantee = _GUARANTEES.pop(name, [])
    if guarantee:
        lines += ["", ".. rubric:: Guarantee", "", *guarantee, ""]


def setup(app):
    NumpyDocString.sections["Guarantee"] = []  # known, so that it is no warning
    app.connect("autodoc-process-docstring", before_numpydoc, priority=100)
    app.connect("autodoc-process-docstring", after_numpydoc, priority=900)
    return {"parallel_read_safe": True}
