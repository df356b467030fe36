"""Pages of the documentation and their blocks of code, run in the order of the page as somebody would who copies them."""

import contextlib
import io
import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

from cli_tools import call

DOCS = Path(__file__).parents[1] / "docs"

FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", flags=re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """A block of code: its language, its text and the paragraph before it."""

    kind: str
    text: str
    before: str

    @property
    def file(self):
        """The name under which the page asks to save it, or None."""
        found = re.search(r"this as `([\w.-]+)`", self.before)
        return found and found[1]

    @property
    def commands(self):
        """The lines of a shell, each with the lines that it goes on in."""
        return self.text.replace("\\\n", " ").splitlines()


def blocks(page):
    """Return the blocks of a page, in order."""
    text = (DOCS / page).read_text(encoding="utf-8")
    found, end = [], 0
    for match in FENCE.finditer(text):
        before = text[end : match.start()].rstrip().rpartition("\n\n")[2]
        found.append(Block(match[1], match[2], before))
        end = match.end()
    return found


def run_page(page, folder, *, silent=True):
    """Run all blocks of a page in a folder; return the names that its Python has defined and what was printed.

    `sh` blocks hold commands of metricdp, which must succeed, without a word on stderr if they are to be `silent`. `none`
    blocks are files, saved where the page says "save this as". A `text` block is what the block before it has printed, "…" standing for anything and every
    number for any number.
    """
    names, said, everything = {}, "", []
    with contextlib.chdir(folder):
        for block in blocks(page):
            if block.kind == "sh":
                said = "".join(_answer(line, folder, silent) for line in block.commands)
            elif block.kind == "python":
                said = _printed(block, page, names)
            elif block.kind == "none" and block.file:
                Path(block.file).write_text(block.text, encoding="utf-8")
            elif block.kind == "text":
                assert _pattern(block.text).search(_plain(said)), (
                    f"{page} shows\n{block.text}but this was said:\n{said}"
                )
            everything.append(said)
    return SimpleNamespace(names=names, said="\n".join(everything))


def _answer(line, folder, silent):
    program, *arguments = shlex.split(line)
    assert program == "metricdp", line
    answer = call(*arguments, cwd=folder)
    assert answer.returncode == 0, f"{line}: {answer.stderr}"
    assert answer.stderr == "" or not silent, f"{line}: {answer.stderr}"
    return answer.stdout


def _printed(block, page, names):
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(block.text, page, "exec"), names)
    return out.getvalue()


def _plain(text):
    """Return text with one space for every gap."""
    return " ".join(text.split())


def _pattern(text):
    """Return what finds the text with any numbers in it, and with anything for "…"."""
    escaped = re.escape(_plain(text))
    with_numbers = re.sub(r"\d+(?:\\\.\d+)?", r"\\d+(?:\\.\\d+)?", escaped)
    return re.compile(re.sub(r"(?:\\ )?…(?:\\ )?", ".*", with_numbers))
