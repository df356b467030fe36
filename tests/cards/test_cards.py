"""Cards show what a stranger's file says without obeying it."""

import io
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from metricdp._cards import Card, html_table, visible

HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "&lt;b&gt;",
    "[red]not markup[/red]",
    "\x1b[2J\x1b]0;owned\x07",
    "right\u202eto left",
    "two\nlines\r",
    "a\u0000b",
]


class Reader(HTMLParser):
    """Collects the tags and the cells' text as a browser would."""

    def __init__(self):
        super().__init__()
        self.tags, self.cells = set(), []

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        if tag in ("td", "th", "caption"):
            self.cells.append("")

    def handle_data(self, data):
        if self.cells and data != "\n":
            self.cells[-1] += data


def read(page):
    reader = Reader()
    reader.feed(page)
    reader.close()
    return reader


@pytest.mark.parametrize("text", HOSTILE)
def test_html_holds_the_text_and_no_tag_of_it(text):
    for page in (Card(text, ((text, text),)).html(), html_table(text, [text], [[text]])):
        found = read(page)
        assert found.tags <= {"table", "caption", "tr", "th", "td"}
        assert found.cells == [visible(text)] * 3


@given(st.text())
def test_any_text_survives_as_itself_but_for_what_cannot_be_seen(text):
    shown = visible(text)
    assert shown.isprintable()
    assert read(Card("t", (("l", text),)).html()).cells == ["t", "l", shown]
    if text.isprintable():
        assert shown == text


@pytest.mark.parametrize("text", HOSTILE)
def test_a_terminal_gets_letters_only(text):
    stream = io.StringIO()
    Console(file=stream, width=200, color_system=None).print(Card("t", (("label", text),)).rich())
    assert visible(text) in stream.getvalue()
    assert "\x1b" not in stream.getvalue()
