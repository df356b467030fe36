"""Pages that are made from the library when the site is built: what is written by hand comes first."""

import importlib

# By page: the module here whose `page` writes what follows.
PAGES = {
    "reference/methods": "methods",
    "reference/command-line": "commands",
    "reference/http": "requests",
    "reference/errors": "errors",
}


def read_page(_app, name, source):
    if name in PAGES:
        written = importlib.import_module(f".{PAGES[name]}", __package__).page()
        source[0] = f"{source[0]}\n{written}"


def setup(app):
    app.connect("source-read", read_page)
    return {"parallel_read_safe": True}
