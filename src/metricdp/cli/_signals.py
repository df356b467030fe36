"""How Ctrl-C (SIGINT) and SIGTERM end a command: soon, whatever it is doing, and with nothing left behind."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import NoReturn

from metricdp._atomic import remove_unfinished

__all__ = ["ended_by_signals", "hand_over_signals", "is_ending", "said_when_stopped"]

# Seconds that a command has to end by itself after the first signal. A second signal ends it at once.
_GRACE_SECONDS = 1.0

_SIGNALS = (signal.SIGINT, signal.SIGTERM)

# The end that Python writes to, of each pipe of this module.
_pipes: set[int] = set()

# What is to be said before the end, at most one function: whoever takes it out of the list calls it.
_last_words: list[Callable[[int], None]] = []

# What the command that runs tells people on stderr if it is stopped, at most one sentence.
_advice: list[str] = []

# The signals that have come while `ended_by_signals` runs.
_received: list[int] = []

_SHOW_CURSOR = "\x1b[?25h"


@contextmanager
def ended_by_signals(last_words: Callable[[int], None] | None = None) -> Iterator[None]:
    """End this process with code 128 + n if signal n, of SIGINT and SIGTERM, comes while the block runs.

    The signal is raised in the block as `KeyboardInterrupt`, so that files are closed and bars taken down. That does
    not happen while a solver's native code runs. Python writes the signal's number to a pipe even then, and a thread
    that reads the pipe ends the process after a grace period. At the end
    `last_words` is called with the exit code.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    _received.clear()
    _last_words[:] = [] if last_words is None else [last_words]

    def interrupt(number: int, _frame: FrameType | None) -> NoReturn:
        _received.append(number)
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in _SIGNALS}
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    _pipes.add(writer)
    earlier_writer = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    threading.Thread(target=_watch, args=(reader,), daemon=True).start()
    try:
        yield
    except BaseException:
        # The interrupt may have become another exception on its way here.
        if _received:
            _leave(_received[0])
        raise
    finally:
        signal.set_wakeup_fd(earlier_writer)
        _pipes.discard(writer)
        os.close(writer)  # ends the thread
        for number, handler in before.items():
            signal.signal(number, handler)


def is_ending() -> bool:
    """Whether a signal is ending this command, so that errors which it meets on its way out are not the cause."""
    return bool(_received)


@contextmanager
def said_when_stopped(sentence: str) -> Iterator[None]:
    """Tell people `sentence` if a signal ends the block, also if the block has no time to end by itself."""
    _advice[:] = [sentence]
    try:
        yield
    finally:
        if not is_ending():
            _advice.clear()


def hand_over_signals() -> None:
    """Leave signals to code that deals with them by itself from now on, as a server does.

    An event loop that waits for signals has put its own pipe in place of ours, and keeps it.
    """
    current = signal.set_wakeup_fd(-1)
    if current not in _pipes:
        signal.set_wakeup_fd(current)


def _watch(reader: int) -> None:
    """Wait for a first signal, then for the end of the grace period or a second one, and end the process."""
    with os.fdopen(reader, "rb", buffering=0) as numbers:
        while (number := numbers.read(1)) and number[0] not in _SIGNALS:
            pass
        if not number:
            return
        timer = threading.Timer(_GRACE_SECONDS, _leave, [number[0]])
        timer.daemon = True
        timer.start()
        while (again := numbers.read(1)) and again[0] not in _SIGNALS:
            pass
        if again:
            _leave(number[0])


def _leave(number: int) -> NoReturn:
    """End this process and its children now, without half-written files or a hidden cursor."""
    try:
        if threading.current_thread() is threading.main_thread():
            for one in _SIGNALS:
                signal.signal(one, signal.SIG_IGN)  # further signals must not interrupt the end
        _kill_children()
        remove_unfinished()
        with suppress(IndexError, OSError, ValueError):
            _last_words.pop()(128 + number)
        with suppress(OSError, ValueError):
            # A bar puts a stream of its own in place of stderr, which would print the cursor's code as text.
            if (people := sys.__stderr__) is not None:
                if people.isatty():
                    people.write(_SHOW_CURSOR)
                people.writelines(f"{sentence}\n" for sentence in _advice)
                people.flush()
            sys.stdout.flush()
    finally:
        os._exit(128 + number)


def _kill_children() -> None:
    import psutil  # noqa: PLC0415 - not needed by a command that ends by itself

    children = psutil.Process().children(recursive=True)
    for child in children:
        with suppress(psutil.NoSuchProcess):
            child.kill()
    psutil.wait_procs(children, timeout=0.5)
