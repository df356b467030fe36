"""How far long work is: a bar in a terminal or a notebook once two seconds have passed, and nothing anywhere else."""

from __future__ import annotations

import html
import importlib
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any

from metricdp._cards import visible
from metricdp._log import LOG

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, ProgressColumn

__all__ = ["PATIENCE_SECONDS", "Tell", "TellRows", "told", "told_rows"]

# Called with the fraction done and a few words.
Tell = Callable[[float, str], None]
# Called with the rows done and, where it is known, the fraction done.
TellRows = Callable[[int, float | None], None]

# Work that takes less shows nothing.
PATIENCE_SECONDS = 2.0

# Between two changes of what a notebook shows.
_NOTEBOOK_SECONDS = 0.2


@contextmanager
def told(progress: Tell | bool | None, title: str, console: Console | None = None) -> Iterator[Tell]:  # noqa: FBT001
    """Yield a callback for work to say how far it is; every word goes to the log as well.

    Parameters
    ----------
    progress : callable, bool or None
        A function to be told instead of a bar; None for a bar that appears after two seconds, True for one that appears
        at once, False for none. There are bars in terminals and notebooks only, and on stderr.
    title : str
        What is being done.
    console : Console, optional
        Where a bar is drawn; stderr by default.
    """
    with _shown(progress, title, console, _stages) as show:

        def tell(fraction: float, words: str) -> None:
            LOG.debug("%s: %.0f %%, %s", title, 100 * fraction, words)
            show(fraction, words)

        yield tell


@contextmanager
def told_rows(
    progress: TellRows | bool | None,  # noqa: FBT001
    title: str,
    console: Console | None = None,
) -> Iterator[TellRows]:
    """Yield a callback for work on rows of points; the parameters are those of `told`."""
    with _shown(progress, title, console, _rows) as show:
        yield show


def _shown(
    progress: Any, title: str, console: Console | None, bar: Callable[..., AbstractContextManager[Any]]
) -> AbstractContextManager[Any]:
    if callable(progress):
        return _nothing_but(progress)
    patience = 0.0 if progress else PATIENCE_SECONDS
    if progress is not False and _in_notebook():
        return _nothing_but(_NotebookLine(title, patience))
    if progress is not False and console is None and sys.stderr is not None and sys.stderr.isatty():
        from rich.console import Console  # noqa: PLC0415 - most callers have no terminal

        console = Console(stderr=True)
    if progress is False or console is None or not console.is_terminal:
        return _nothing_but(lambda *_: None)
    return bar(title, console, patience)


@contextmanager
def _nothing_but(show: Any) -> Iterator[Any]:
    try:
        yield show
    finally:
        if isinstance(show, _NotebookLine):
            show.clear()


@contextmanager
def _stages(title: str, console: Console, patience: float) -> Iterator[Tell]:
    from rich.progress import TextColumn  # noqa: PLC0415

    with _drawn(title, console, patience, TextColumn("{task.description}", markup=False)) as bar:
        task = bar.add_task("", total=1.0)
        yield lambda fraction, words: bar.update(task, completed=fraction, description=visible(words))


@contextmanager
def _rows(title: str, console: Console, patience: float) -> Iterator[TellRows]:
    from rich.progress import TextColumn  # noqa: PLC0415

    words = TextColumn("{task.fields[rows]:,} rows, {task.fields[speed]:,.0f} rows/s")
    with _drawn(title, console, patience, words) as bar:
        task = bar.add_task("", total=None, rows=0, speed=0.0)

        def tell(rows: int, fraction: float | None) -> None:
            speed = rows / max(bar.tasks[0].elapsed or 0.0, 1e-9)
            total = None if fraction is None else 1.0
            bar.update(task, total=total, completed=fraction or 0.0, rows=rows, speed=speed)

        yield tell


@contextmanager
def _drawn(title: str, console: Console, patience: float, words: ProgressColumn) -> Iterator[Progress]:
    """Draw a bar once the patience is at its end, whether or not the work has said anything by then."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn  # noqa: PLC0415

    bar = Progress(
        TextColumn(visible(title), markup=False), BarColumn(), words, TimeElapsedColumn(), TimeRemainingColumn(),
        console=console, transient=True,
    )  # fmt: skip
    timer = threading.Timer(patience, bar.start)
    timer.daemon = True
    timer.start()
    try:
        yield bar
    finally:
        timer.cancel()
        timer.join()  # a bar that is just being started is stopped after that
        bar.stop()


def _in_notebook() -> bool:
    """Return whether this process is the kernel of a notebook."""
    if "IPython" not in sys.modules:
        return False
    from rich.console import Console  # noqa: PLC0415 - knows the notebooks of several makers

    return bool(Console().is_jupyter)


class _NotebookLine:
    """A line of a notebook with a bar that is updated in place. It needs IPython alone, which every kernel has."""

    def __init__(self, title: str, patience: float) -> None:
        self.title, self.next = title, time.monotonic() + patience
        self.handle: Any = None

    def __call__(self, done: float, more: Any) -> None:
        """Show a fraction and a few words, or a number of rows and perhaps a fraction."""
        if time.monotonic() < self.next:
            return
        self.next = time.monotonic() + _NOTEBOOK_SECONDS
        fraction, words = (done, more) if isinstance(more, str) else (more, f"{done:,} rows")
        value = "" if fraction is None else f' value="{float(fraction):.4f}"'
        self._show(f"{html.escape(visible(self.title))} <progress{value}></progress> {html.escape(visible(words))}")

    def _show(self, text: str) -> None:
        ipython: Any = importlib.import_module("IPython.display")  # there is one where there is a notebook
        if self.handle is None:
            self.handle = ipython.display(ipython.HTML(text), display_id=True)
        else:
            self.handle.update(ipython.HTML(text))

    def clear(self) -> None:
        """Leave nothing behind."""
        if self.handle is not None:
            self._show("")
