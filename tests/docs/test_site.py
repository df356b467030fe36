"""The site: every page is in the menu, every public name, method, command and route is in the reference, and links lead somewhere."""

import inspect
import re
import subprocess
import sys
from dataclasses import fields
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

import metricdp as mdp
from metricdp.cli._commands import COMMANDS

pytest.importorskip("sphinx", reason="needs the dependency group `docs`")

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
MODULES = {"metricdp": mdp} | {
    f"metricdp.{name}": getattr(mdp, name) for name in ("cities", "files", "perturb", "traces")
}
MADE_BY_THE_GALLERY = "examples/index"
TOCTREE = re.compile(r"^```\{toctree\}\n(.*?)^```", flags=re.DOTALL | re.MULTILINE)


@pytest.fixture(autouse=True)
def own_modules(monkeypatch):
    monkeypatch.syspath_prepend(DOCS)


def pages():
    found = (path.relative_to(DOCS) for pattern in ("*.md", "*.ipynb") for path in DOCS.rglob(pattern))
    return {path.with_suffix("").as_posix() for path in found if path.parts[0] not in {"_site", "examples"}}


def listed_on(page):
    """Yield the pages that a page's menus list."""
    path = DOCS / f"{page}.md"
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    for block in TOCTREE.findall(text):
        for line in block.splitlines():
            entry = re.sub(r"^.*<(.+)>$", r"\1", line.strip())
            if entry and not entry.startswith(":"):
                base = path.parent
                matches = sorted(base.glob(f"{entry}.md")) + sorted(base.glob(f"{entry}.ipynb"))
                yield from (match.resolve().relative_to(DOCS).with_suffix("").as_posix() for match in matches)


def test_every_page_is_reached_from_the_first():
    reached, waiting = set(), ["index"]
    while waiting:
        page = waiting.pop()
        if page not in reached:
            reached.add(page)
            waiting += listed_on(page)
    assert reached == pages()


def documented(kind):
    """Return what the pages of the reference hand to autodoc."""
    text = "".join(path.read_text(encoding="utf-8") for path in (DOCS / "reference").glob("*.md"))
    return set(re.findall(rf"^\.\. auto{kind}:: (\S+)$", text, flags=re.MULTILINE))


@pytest.mark.parametrize("name", MODULES)
def test_every_public_name_is_in_the_reference(name):
    by_errors = {
        f"metricdp.{one}" for one in ("InvalidInputError", "NotCertified", "ProblemTooLargeError", "SolverError")
    }
    there = documented(r"\w+") | by_errors | set(MODULES) | {"metricdp.__version__"}
    same = {"metricdp.files.load": "metricdp.load"}
    public = {f"{name}.{one}" for one in MODULES[name].__all__}
    assert {same.get(one, one) for one in public} <= there


def test_the_reference_names_nothing_that_is_not_there():
    for name in documented(r"\w+"):
        module, _, own = name.rpartition(".")
        assert hasattr(MODULES[module], own), name
    for name in documented("class"):
        module, _, own = name.rpartition(".")
        assert inspect.isclass(getattr(MODULES[module], own)), name


def test_every_method_and_option_is_in_the_reference(monkeypatch):
    from _site import methods

    monkeypatch.setattr(
        methods, "supported", lambda _: ("norms", "axes")
    )  # which takes seconds; the slow test builds it
    monkeypatch.setattr(methods, "supported_by_noise", lambda: ("norms", "axes"))
    text = methods.page()
    for name, method in mdp.METHODS.items():
        section = f"\n{text}".split(f"\n## {name}\n")[1].split("\n## ")[0]
        for option in (field.name for field in fields(method.options)):
            assert re.search(rf"^\| `{option}` \| .+ \| .+ \|$", section, flags=re.MULTILINE), (name, option)
        assert f"| [`{name}`](#{name}) | {method.label} | {'proved' if method.private else '**no**'} |" in text


def test_what_methods_support_is_found_by_trying():
    from _site import methods

    assert methods.designs("em", 1.5, 4)
    assert not methods.designs("laplace", 2, 5)
    assert not methods.designs("spline", 1.5, 4)
    fits = {(p, n): n < 4 or (n == 4 and p == 2) for p in methods.NORMS for n in methods.AXES}
    assert methods.in_words(fits) == ("1 ≤ p ≤ ∞ for N = 1–3; 2 for N = 4", "1–4")


def test_every_command_and_option_is_in_the_reference():
    from _site import commands
    from typer.main import get_command

    from metricdp.cli import app

    text, group = commands.page(), get_command(app)
    for name in COMMANDS:
        command = group.resolve_command(commands.context_of(group, None, "metricdp"), [name])[1]
        parts = getattr(command, "commands", None)
        for typed, one in (
            {name: command}.items() if parts is None else ((f"{name} {part}", parts[part]) for part in parts)
        ):
            section = re.split(r"\n#{2,3} metricdp ", text.split(f" metricdp {typed}\n")[1])[0]
            own = [parameter for parameter in one.params if parameter.name not in commands.COMMON]
            assert len(re.findall(r"^\| `", section, flags=re.MULTILINE)) == len(own), typed
            for option in (option for parameter in own for option in parameter.opts if option.startswith("-")):
                assert re.search(rf"^\| `[^`]*{re.escape(option)}\b", section, flags=re.MULTILINE), (typed, option)


def test_every_request_and_error_is_in_the_reference():
    pytest.importorskip("fastapi", reason="needs the extra `service`")
    from _site import errors, requests

    text = requests.page()
    for path, methods in requests.document()["paths"].items():
        for method in methods:
            assert f"\n## {method.upper()} {path}\n" in f"\n{text}"
    for name in re.findall(r"\]\(#(\w+message|\w+answer|problemdetails)\)", text):
        assert f"### {name}\n" in text.lower()
    for name, one in vars(mdp.errors).items():
        if inspect.isclass(one) and issubclass(one, Exception):
            assert f"| `metricdp.{name}` |" in errors.page()


def test_links_out_of_docs_lead_to_the_page_that_shows_the_file():
    from _site.links import rewritten

    text = (
        "[map](ARCHITECTURE.md) [page](docs/perturb.md#urls) [code](src/metricdp/problem.py) "
        "[gallery](examples/plot_elastic.py) [web](https://example.org) ![picture](benchmarks/growth.png)\n"
        "```sh\n[map](ARCHITECTURE.md)\n```\n"
    )
    assert rewritten(text, "CONTRIBUTING.md", "develop/contributing.md") == (
        "[map](architecture.md) [page](../perturb.md#urls) `code` "
        "[gallery](../examples/plot_elastic.rst) [web](https://example.org) ![picture](../../benchmarks/growth.png)\n"
        "```sh\n[map](ARCHITECTURE.md)\n```\n"
    )


def test_formulas_are_mathml():
    from _site.mathml import mathml

    assert "<msup>" in mathml(r"e^{\varepsilon d}", as_block=False)
    assert mathml(r"\| g \|_q", as_block=False).count('<mo stretchy="false">‖</mo>') == 2
    assert "<mspace" in mathml(r"\ln z", as_block=False)
    assert "<mspace" not in mathml(r"\ln(z)", as_block=False)


class Page(HTMLParser):
    """The ids and links of a built page, and what a browser fetches to show it."""

    def __init__(self, path):
        super().__init__()
        self.ids, self.links, self.fetched = set(), [], []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        self.ids |= {found[name] for name in ("id", "name") if found.get(name)}
        if tag == "a" and found.get("href"):
            self.links.append(found["href"])
        if tag == "link" and found.get("rel") not in {"index", "search", "next", "prev", "canonical"}:
            self.fetched.append(found["href"])
        if found.get("src"):
            self.fetched.append(found["src"])


def build(folder):
    # Examples are run by tests/docs/test_examples.py.
    command = [sys.executable, "-m", "sphinx", "--fail-on-warning", "--keep-going", "--quiet", "-D", "plot_gallery=0"]
    answer = subprocess.run(
        [*command, str(DOCS), str(folder)], capture_output=True, text=True, check=False, timeout=900
    )
    assert answer.returncode == 0, answer.stderr
    return {path.relative_to(folder).as_posix(): Page(path) for path in folder.rglob("*.html")}


@pytest.mark.slow
def test_the_built_site(tmp_path):
    """It builds without a warning, links inside it lead to pages and anchors, and it fetches nothing from elsewhere."""
    site = tmp_path / "site"
    found = build(site)
    assert len(found) > 40
    broken = []
    for name, page in found.items():
        for target in page.fetched:
            assert not urlsplit(target).netloc, (name, target)
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            path = (site / name).parent / unquote(parts.path) if parts.path else site / name
            other = path.resolve().relative_to(site.resolve()).as_posix()
            anchored = not parts.fragment or other not in found or unquote(parts.fragment) in found[other].ids
            if not (path.is_file() and anchored):
                broken.append((name, link))
    assert broken == []
    for style in site.rglob("*.css"):
        assert not re.search(r"url\(['\"]?https?:|@import ['\"]?https?:", style.read_text(encoding="utf-8")), style
