"""Native solvers that Ctrl-C can stop: Python cannot raise an exception inside them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

__all__ = ["interruptible"]

T = TypeVar("T")


def interruptible(solve: Callable[[], T], cancel: Callable[[], None] | None = None) -> T:
    """Return what `solve` returns; it runs in a thread, so that an exception reaches the caller while it runs.

    On an exception in the caller, Ctrl-C above all, `cancel` asks the solver to stop and nobody waits for it.
    """
    if threading.current_thread() is not threading.main_thread():
        return solve()  # only the main thread is interrupted
    answer: Future[T] = Future()

    def work() -> None:
        try:
            answer.set_result(solve())
        except BaseException as error:  # noqa: BLE001 - raised where the answer is taken
            answer.set_exception(error)

    threading.Thread(target=work, daemon=True).start()
    try:
        return answer.result()
    except KeyboardInterrupt:
        if cancel is not None:
            cancel()
        raise
