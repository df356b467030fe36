"""A ledger of what each person has spent of a privacy budget; processes share it, and a crash never undercounts."""

from __future__ import annotations

import math
import os
import warnings
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from metricdp._validation import FloatArray, choice, positive, reject, table
from metricdp.drawing.randomness import RandomSource
from metricdp.errors import InvalidInputError
from metricdp.files.reading import content_hash
from metricdp.ledger.batch import Batch, Requests, keyed, numbered
from metricdp.ledger.database import LedgerFile, enrolled
from metricdp.ledger.terms import Terms
from metricdp.ledger.times import Ticks, seconds, span, span_text, ticks, unix_seconds
from metricdp.ledger.units import Budget, Scale, claimed
from metricdp.ledger.windows import book_of
from metricdp.mechanisms.base import Mechanism

__all__ = ["Ledger"]

_SHORTEST_KEY, _LONGEST_KEY = 16, 64


class Ledger:
    """Draws outputs for persons and keeps what each has spent, in a SQLite file that processes and threads may share.

    Parameters
    ----------
    path : str or Path
        The file, on a local disk; made with mode 0600 if there is none. SQLite keeps two more beside it (`-wal`,
        `-shm`) while it is open, which belong to it. The file remembers its path and is refused elsewhere, see `moved`.
    max_epsilon : float, optional
        What every person may spend, in all or in each window: per true km for mechanisms with a projection, otherwise
        per unit of their coordinates. Fixed when the file is made: later on another number is refused, and without
        one the file's own `max_epsilon`, `window`, `every` and `sticky_km` apply.
    window : str, float or timedelta, optional
        "24h", or a number of seconds: the limit is for the charges of each such length of time, both ends included.
        By default it is for all charges together. Fixed like `max_epsilon`.
    every : str, float or timedelta, optional
        "10min": within one period, a person gets the same output of the same mechanism again at no cost. Periods
        begin at whole multiples since 1970-01-01 00:00 UTC. Fixed like `max_epsilon`.
    beyond : "refuse" or "repeat-last"
        The answer to a person who has not enough budget left for another draw: -1, or the person's last output from
        the same mechanism (-1 if there is none) at no cost.
    sticky_km : float, optional
        If given, a person within this distance of the true point of their last draw, as the mechanism measures it,
        gets the same output again at no cost; 0 means the same lattice point. Fixed like `max_epsilon`.
    user_key : bytes, optional
        16 to 64 secret bytes, kept elsewhere. If given, the file holds keyed hashes (BLAKE2b) of the persons' ids
        instead of the ids.
    moved : bool
        The file was moved or restored to this path on purpose, and the one at the old path is not in use any more.

    Guarantee
    ---------
    *Composition.* Let one person's n requests have true points x_1, …, x_n, and let x'_1, …, x'_n be others with
    d(x_i, x'_i) ≤ D for all i. If every mechanism keeps what it claims, a ratio of at most e^{ε_i (d + r)} between any
    two points as they are given, all the answers together are at most e^{E (D + r)} times likelier from one than from
    the other. E is the sum of the ε_i that were charged (`Mechanism.claimed_epsilon`), at most `max_epsilon`; r is the
    largest `claimed_rounding` among them, what rounding to a lattice adds to a distance: 1.35 mm for a city. With a
    projection d is in true km, and for p other than 2 the exponent is max(1, 2^{1/p − 1/2}) times as large.
    Without `sticky_km`, whether a request is charged, refused or repeated depends on how many there were and not on
    the points, and a repeated output tells nothing new. When and how often a person asks is not hidden.

    *Windows.* With `window` the bound above holds for trajectories that differ in one interval of that length, however
    long they are: E is then the sum of the charges in the interval, at most `max_epsilon`. The times are those of the
    draws; what `every` repeats tells nothing new, whatever the points are.

    *Times.* With `window` or `every` each request has a time, in whole microseconds. It comes from `times`, or from
    the system's clock once the file is locked. A time before that of the person's last draw is refused: the answer is
    -1, whatever `beyond` says, and nothing is charged. So after a clock was set back, people are refused until it has
    caught up. Whoever may choose times can empty every window, so never take them from strangers.

    *Sums are exact.* ε is the decimal number that its shortest text says, as in mechanism files (within 2^-53 of the
    float), charged in whole units of the 18th digit of `max_epsilon`, rounded up. Ten times 0.1 is 1.

    *Crashes.* Charges are on the disk before `sample` returns. A process killed in between has charged for outputs that
    nobody saw; none is ever seen that was not charged. This holds for one file: a copy restored from a backup has
    forgotten what came after, and budgets of several ledgers add up. Under two names (hard links, a single file that is
    mounted elsewhere) one file would keep two logs, so a file with a second name is refused, at every draw.

    *Stickiness leaks.* It keeps observers from averaging many draws for one place. But which requests were drawn anew
    depends on the true points and can be seen: two different outputs are impossible for a person who did not move,
    so no e^{E·D} bounds their ratio. What holds is the bound above for trajectories with the same pattern of draws;
    the pattern itself, "moved farther than `sticky_km` since the last draw" or not, is given away. Whoever
    knows where a person was learns from a repetition that they are still there, and whoever may ask on another's behalf
    can find that person by trying points. The file then holds, for each person and mechanism, the true point of the
    last draw (and traces of earlier ones); without `sticky_km` it holds no points.

    Mechanisms that share a ledger must have the same p, and all or none of them a projection. Their claims are
    believed, since a proof takes longer than a draw: certify them first (`load` does).

    Examples
    --------
    >>> import tempfile, metricdp as mdp
    >>> problem = mdp.Problem([[0.0], [4.0]], [[1.0], [3.0]], "euclidean")
    >>> mechanism = mdp.fit(problem, epsilon=0.5, method="em")
    >>> with tempfile.TemporaryDirectory() as folder, mdp.Ledger(f"{folder}/budgets.db", max_epsilon=1) as ledger:
    ...     answers = ledger.sample(mechanism, ["ann", "ann", "bob", "ann"], [[2.0], [2.5], [1.0], [2.0]])
    ...     print((answers >= 0).tolist(), ledger.spent("ann"), ledger.remaining("bob"))
    [True, True, True, False] 1.0 0.5
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        max_epsilon: float | None = None,
        *,
        window: Any = None,
        every: Any = None,
        beyond: str = "refuse",
        sticky_km: float | None = None,
        user_key: bytes | None = None,
        moved: bool = False,
    ) -> None:
        self.beyond = choice("beyond", beyond, ("refuse", "repeat-last"))
        self._key = _checked_key(user_key)
        wanted = Terms(
            None if max_epsilon is None else positive("max_epsilon", max_epsilon),
            None if sticky_km is None else _radius(sticky_km),
            None if self._key is None else keyed("", self._key),
            span("window", window),
            span("every", every),
        )
        self._file = LedgerFile(Path(path).resolve(), wanted, moved=moved)
        self.path, terms = self._file.path, self._file.terms
        assert terms.max_epsilon is not None
        self.max_epsilon, self.sticky_km = terms.max_epsilon, terms.sticky_km
        self.window, self.every, self.timed = span_text(terms.window), span_text(terms.every), terms.timed
        self._book = book_of(terms)
        self._scale = Scale.of(self.max_epsilon)
        self._warned_of: set[str] = set()

    def sample(
        self,
        mechanism: Mechanism,
        users: ArrayLike,
        x: ArrayLike,
        rng: RandomSource | None = None,
        *,
        times: ArrayLike | None = None,
        outside: str = "clamp",
        callers: Sequence[str] | None = None,
    ) -> NDArray[np.int64]:
        """Return an output for every request, in order; -1 where it is refused.

        Requests are served in the order of the rows, so one person's rows must be in the order of their times.

        Warns once if a report of the mechanism costs more than `max_epsilon`, since nobody will then get one.

        Parameters
        ----------
        mechanism : Mechanism
            Charges its `claimed_epsilon` for every draw. It must choose among outputs: mere noise is not supported.
        users : (m,) array of text or whole numbers
            Who asks. 7 and "7" are the same person; otherwise ids are compared letter for letter: "Ann", "ann" and
            "ann " are three persons. At most 1024 letters, none of them NUL (arrays of numpy's text silently drop
            those at the end of an id, so give a list if ids come from strangers).
        x : (m, N) array
            Where they are, in the coordinates of the mechanism.
        rng, outside
            As in `Mechanism.sample`. What an `InsecureSeed` drew may be repeated later on, so a ledger that has seen
            one is good for tests only.
        times : (m,) array or one number, optional
            When they ask, in unix seconds (or numpy's datetime64, taken to be UTC), for a ledger with `window` or
            `every`; by default the system's clock says when. A time before that of the person's last draw is refused.
        callers : (m,) sequence of text, optional
            Through whom each request came, for `budget`. What a person may spend does not depend on it.

        Raises
        ------
        InvalidInputError
            If an argument breaks a rule or the file is damaged.
        TimeoutError
            If others keep the file locked for a minute.
        OSError
            If the file cannot be written. Whatever the error, no output was released.
        """
        return self.answer(mechanism, users, x, rng, times=times, outside=outside, callers=callers)[0]

    def answer(
        self,
        mechanism: Mechanism,
        users: ArrayLike,
        x: ArrayLike,
        rng: RandomSource | None = None,
        *,
        times: ArrayLike | None = None,
        outside: str = "clamp",
        callers: Sequence[str] | None = None,
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Return what `sample` returns, and which requests were refused because of their time."""
        cost = self._scale.cost(claimed(mechanism))
        self.warn_if_unaffordable(mechanism)
        # Drawn before the file is locked, so that others wait less; draws that are not paid for are dropped.
        drawn = mechanism.sample(x, rng, outside=outside).astype(np.int64)
        who, names = numbered(users, len(drawn), self._key)
        ticks = self._ticks(times, len(drawn))
        if not names:
            return drawn, np.zeros(0, dtype=bool)
        points, sha256 = None if self.sticky_km is None else _snapped(mechanism, x), _hash_of(mechanism)
        batch = Batch(
            names,
            Requests(who, len(names)),
            drawn,
            cost,
            self._scale.limit,
            points,
            self.sticky_km or 0.0,
            mechanism.p,
            callers,
            ticks,
        )
        with self._file.transaction(names) as database:
            outcome = self._book.charge(database, enrolled(database, mechanism, sha256), batch)
        # The transaction has ended: from here on, what is returned is paid for.
        return outcome.answers(batch, self.beyond).view(type(drawn)), outcome.late

    def spent(self, user: str | int, *, time: float | None = None) -> float:
        """Return the sum of a person's charges that count, as the nearest float; 0 for a person who never asked."""
        return self.budget(user, time=time).spent

    def remaining(self, user: str | int, *, time: float | None = None) -> float:
        """Return what a person may still spend, as the nearest float."""
        return self.budget(user, time=time).remaining

    def budget(
        self,
        user: str | int,
        mechanism: Mechanism | None = None,
        *,
        time: float | None = None,
        caller: str | None = None,
    ) -> Budget:
        """Return where a person stands: `spent`, `remaining`, `reports`, `affordable` reports and `frees_at`.

        With a window, it is the one that ends at `time` (unix seconds; by default now), or at the person's last draw if
        that was later. With `caller`, only what was charged through that caller counts (see `sample`), so that the
        answer tells nothing about the reports that the person had through others; what really remains may then be less.
        A person who never asked has spent nothing.
        """
        _, (name,) = numbered([user], 1, self._key)
        found = self._book.standing(self._file.read, name, caller, unix_seconds("time", time))
        return self._scale.budget(found.units, found.reports, found.frees_at, mechanism)

    def affordable(self, mechanism: Mechanism) -> int:
        """Return how many reports of a mechanism `max_epsilon` pays for."""
        return self._scale.limit // self._scale.cost(claimed(mechanism))

    def warn_if_unaffordable(self, mechanism: Mechanism, warn: Callable[[str], None] | None = None) -> None:
        """Warn, once for each mechanism, if a report costs more than anybody may spend.

        `warn` is called with the sentence; by default it becomes a Python warning.
        """
        if self.affordable(mechanism) or _hash_of(mechanism) in self._warned_of:
            return
        self._warned_of.add(_hash_of(mechanism))
        per = "in all" if self.window is None else f"in {self.window}"
        words = (
            f"No report is affordable: each costs ε = {claimed(mechanism):g}, and nobody may spend more than "
            f"{self.max_epsilon:g} {per}, so every request is refused."
        )
        if warn is None:
            warnings.warn(words, stacklevel=4)
        else:
            warn(words)

    def users(self, *, time: float | None = None) -> pd.DataFrame:
        """Return one row per person who was charged: `user` (as stored), `reports`, `spent` and `remaining`.

        With a window they are about the one that ends at `time`, see `budget`, and `frees_at` is a column too.
        """
        query, values = self._book.everybody(None, unix_seconds("time", time))
        rows = self._file.read(query, *values)
        epsilon, remaining = self._scale.epsilon, self._scale.remaining
        columns = {
            "user": pd.Series([user for user, *_ in rows], dtype=object),
            "reports": pd.Series([count for _, _, count, *_ in rows], dtype=np.int64),
            "spent": pd.Series([epsilon(units) for _, units, *_ in rows], dtype=np.float64),
            "remaining": pd.Series([remaining(units) for _, units, *_ in rows], dtype=np.float64),
        }
        if self.window is not None:
            columns["frees_at"] = pd.Series([seconds(frees_at) for *_, frees_at, _ in rows], dtype=np.float64)
        return pd.DataFrame(columns)

    def close(self) -> None:
        """Close the file; the ledger cannot be used afterwards."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        given = {"window": self.window, "every": self.every, "beyond": self.beyond}
        shown = "".join(f", {name}={value!r}" for name, value in given.items() if value is not None)
        sticky = "" if self.sticky_km is None else f", sticky_km={self.sticky_km:g}"
        return f"Ledger({str(self.path)!r}, max_epsilon={self.max_epsilon:g}{shown}{sticky})"

    def _ticks(self, times: ArrayLike | None, count: int) -> Ticks | None:
        if times is None:
            return None
        if not self.timed:
            msg = "`times` are for a ledger that was made with `window` or `every`; this one counts for ever."
            raise InvalidInputError(msg)
        return ticks(times, count)


def _snapped(mechanism: Mechanism, x: ArrayLike) -> FloatArray:
    """Return the points that stand for `x` in the mechanism."""
    return mechanism.snap(mechanism.clamp(table("x", x, columns=mechanism.bounds.shape[1])))


_HASHES: weakref.WeakKeyDictionary[Mechanism, str] = weakref.WeakKeyDictionary()


def _hash_of(mechanism: Mechanism) -> str:
    """Return `content_hash`, computed once: output 3 of one mechanism is not output 3 of another."""
    if mechanism not in _HASHES:
        _HASHES[mechanism] = content_hash(mechanism)
    return _HASHES[mechanism]


def _radius(value: Any) -> float:
    rule = "a finite number of at least 0"
    try:
        radius = float(value)
    except (TypeError, ValueError):
        raise reject("sticky_km", rule, repr(value)) from None
    if not 0 <= radius < math.inf:
        raise reject("sticky_km", rule, repr(value))
    return radius


def _checked_key(key: object) -> bytes | None:
    if key is None:
        return None
    if not isinstance(key, bytes) or not _SHORTEST_KEY <= len(key) <= _LONGEST_KEY:
        # How long it is, never what it is.
        got = f"{len(key)} bytes" if isinstance(key, bytes) else type(key).__name__
        raise reject("user_key", f"{_SHORTEST_KEY} to {_LONGEST_KEY} bytes", got)
    return key
