"""A ledger of what each person has spent of a privacy budget; processes share it, and a crash never undercounts."""

from __future__ import annotations

import math
import os
import warnings
import weakref
from collections.abc import Callable, Sequence
from itertools import repeat
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from metricdp._validation import FloatArray, choice, positive, reject, table
from metricdp.drawing.randomness import RandomSource
from metricdp.files.reading import content_hash
from metricdp.ledger.batch import Requests, keyed, numbered, pack, redrawn, through
from metricdp.ledger.database import LedgerFile, State, Terms, charge, charge_callers, enrolled
from metricdp.ledger.units import Budget, Scale, claimed
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
        What every person may spend in all: per true km for mechanisms with a projection, otherwise per unit of their
        coordinates. Fixed when the file is made: later on another number is refused, and without one the file's own
        `max_epsilon` and `sticky_km` apply.
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
        *,
        max_epsilon: float | None = None,
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
        )
        self._file = LedgerFile(Path(path).resolve(), wanted, moved=moved)
        self.path = self._file.path
        self.max_epsilon, self.sticky_km = self._file.max_epsilon, self._file.sticky_km
        self._scale = Scale.of(self.max_epsilon)
        self._warned_of: set[str] = set()

    def sample(
        self,
        mechanism: Mechanism,
        users: ArrayLike,
        x: ArrayLike,
        rng: RandomSource | None = None,
        *,
        outside: str = "clamp",
        callers: Sequence[str] | None = None,
    ) -> NDArray[np.int64]:
        """Return an output for every request, in order; -1 where it is refused.

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
        cost = self._scale.cost(claimed(mechanism))
        self.warn_if_unaffordable(mechanism)
        # Drawn before the file is locked, so that others wait less; draws that are not paid for are dropped.
        drawn = mechanism.sample(x, rng, outside=outside).astype(np.int64)
        who, names = numbered(users, len(drawn), self._key)
        if not names:
            return drawn
        requests, sha256 = Requests(who, len(names)), _hash_of(mechanism)
        points = None if self.sticky_km is None else _snapped(mechanism, x)
        with self._file.transaction(names) as database:
            number = enrolled(database, mechanism, sha256)
            state = State.read(database, number)
            affordable = (self._scale.limit - state.spent) // cost
            if points is None:
                draws = held = requests.rank < affordable[who]
            else:
                draws, held = redrawn(who, points, affordable, state.points, self.sticky_km or 0.0, mechanism.p)
            latest = requests.latest(draws)
            people, counts, rows = requests.totals(draws, latest)
            ids = [names[person] for person in people.tolist()]
            packed = repeat(None) if points is None else pack(points[rows])
            charges = (ids, repeat(number), (counts * cost).tolist(), counts.tolist(), drawn[rows].tolist(), packed)
            charge(database, zip(*charges, strict=False))
            if callers is not None:
                charge_callers(database, through(callers, names, who, draws, cost))
        # The transaction has ended: from here on, what is returned is paid for.
        answers = np.where(latest >= 0, drawn[latest], state.outputs[who])
        if self.beyond == "refuse":
            answers[~(draws | held)] = -1
        return answers.view(type(drawn))

    def spent(self, user: str | int) -> float:
        """Return the sum of a person's charges, as the nearest float; 0 for a person who never asked."""
        return self.budget(user).spent

    def remaining(self, user: str | int) -> float:
        """Return what a person may still spend, as the nearest float."""
        return self.budget(user).remaining

    def budget(self, user: str | int, mechanism: Mechanism | None = None, *, caller: str | None = None) -> Budget:
        """Return where a person stands: `spent`, `remaining`, `reports` and, given a mechanism, `affordable` reports.

        With `caller`, only what was charged through that caller counts (see `sample`), so that the answer tells nothing
        about the reports that the person had through others; what really remains may then be less. A person who never
        asked has spent nothing.
        """
        _, (name,) = numbered([user], 1, self._key)
        return self._scale.budget(*self._file.charged(name, caller), mechanism)

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
        words = (
            f"No report is affordable: each costs ε = {claimed(mechanism):g}, and nobody may spend more than "
            f"{self.max_epsilon:g} in all, so every request is refused."
        )
        if warn is None:
            warnings.warn(words, stacklevel=3)
        else:
            warn(words)

    def users(self) -> pd.DataFrame:
        """Return one row per person who was charged: `user` (as stored), `reports`, `spent` and `remaining`."""
        rows = self._file.read("SELECT user, SUM(count), SUM(spent) FROM reports GROUP BY user ORDER BY user")
        epsilon, remaining = self._scale.epsilon, self._scale.remaining
        return pd.DataFrame(
            {
                "user": pd.Series([user for user, _, _ in rows], dtype=object),
                "reports": pd.Series([count for _, count, _ in rows], dtype=np.int64),
                "spent": pd.Series([epsilon(units) for _, _, units in rows], dtype=np.float64),
                "remaining": pd.Series([remaining(units) for _, _, units in rows], dtype=np.float64),
            }
        )

    def close(self) -> None:
        """Close the file; the ledger cannot be used afterwards."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        sticky = "" if self.sticky_km is None else f", sticky_km={self.sticky_km:g}"
        return f"Ledger({str(self.path)!r}, max_epsilon={self.max_epsilon:g}, beyond={self.beyond!r}{sticky})"


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
