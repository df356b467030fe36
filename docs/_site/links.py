"""Links of Markdown files that lead out of `docs`: to the page that shows the file, or else to no link at all.

On GitHub such a link opens the file. The site has pages for some of them; of the others it shows the name.
"""

import posixpath
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]

# Files outside of `docs` that have a page.
PAGES = {
    "README.md": "index.md",
    "ARCHITECTURE.md": "develop/architecture.md",
    "CONTRIBUTING.md": "develop/contributing.md",
    "SECURITY.md": "develop/security.md",
    "CHANGELOG.md": "develop/changelog.md",
    "benchmarks/README.md": "develop/benchmarks.md",
    "js/README.md": "develop/javascript.md",
    "js/extension/README.md": "develop/extension.md",
    "examples/README.md": "examples/index.rst",
}
EXAMPLE = re.compile(r"examples/(plot_\w+)\.py")
LINK = re.compile(r"(?<!!)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")
PICTURE = re.compile(r"(!\[[^\]]*\]\()([^)\s]+)(\))")
FENCE = re.compile(r"^(```|~~~|:::).*?^\1", flags=re.DOTALL | re.MULTILINE)


def page_of(path):
    """Return the page that shows a file of the repository, as a path in `docs`; None if none does."""
    if path.startswith("docs/"):
        return path.removeprefix("docs/") if (ROOT / path).suffix in {".md", ".ipynb", ".rst"} else None
    example = EXAMPLE.fullmatch(path)
    return f"examples/{example[1]}.rst" if example else PAGES.get(path)


def rewritten(text, origin, page):
    """Return Markdown that lies at `origin` in the repository with links that are right on `page` of the site."""
    here = posixpath.dirname(origin)
    there = posixpath.dirname(f"docs/{page}")

    def lead(match):
        words, (target, _, anchor) = match[1], match[2].partition("#")
        if not target or re.match(r"[a-z]+:", target):
            return match[0]
        path = posixpath.normpath(posixpath.join(here, target))
        found = page_of(path)
        if found is None:
            if path.startswith("docs/"):
                return f"[{words}]({posixpath.relpath(path, there)})"
            return words if "`" in words else f"`{words}`"
        return f"[{words}]({posixpath.relpath(f'docs/{found}', there)}{'#' + anchor if anchor else ''})"

    def show(match):
        if re.match(r"[a-z]+:", match[2]):
            return match[0]
        path = posixpath.normpath(posixpath.join(here, match[2]))
        return f"{match[1]}{posixpath.relpath(path, there)}{match[3]}"

    return outside_fences(text, lambda part: PICTURE.sub(show, LINK.sub(lead, part)))


def outside_fences(text, change):
    """Return Markdown in which `change` was applied to everything but blocks of code."""
    parts, end = [], 0
    for fence in FENCE.finditer(text):
        parts += [change(text[end : fence.start()]), fence[0]]
        end = fence.end()
    return "".join([*parts, change(text[end:])])


def read_page(app, name, source):
    path = Path(app.env.doc2path(name))
    if path.suffix == ".md":
        origin = path.relative_to(ROOT).as_posix()
        source[0] = rewritten(source[0], origin, path.relative_to(app.srcdir).as_posix())


def read_included(app, path, _parent, source):
    origin = (Path(app.srcdir) / path).resolve().relative_to(ROOT).as_posix()
    page = Path(app.env.doc2path(app.env.docname)).relative_to(app.srcdir).as_posix()
    source[0] = rewritten(source[0], origin, page)


def setup(app):
    app.connect("source-read", read_page)
    app.connect("include-read", read_included)
    return {"parallel_read_safe": True}
