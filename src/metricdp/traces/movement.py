"""How people move, in public: a prior over cells, displacements after some time, and Bayes' rule along a trace."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import fft

from metricdp._validation import FloatArray, finite_array, fraction, freeze_arrays, positive, reject, unit_sum
from metricdp.errors import InvalidInputError
from metricdp.traces.learning import kernels_of, occupancy, raster_about, read_traces, resampled
from metricdp.traces.model_files import projection_fields, projection_from, read_model, write_model
from metricdp.traces.raster import Raster
from metricdp.traces.roads import disc_kernel, raster_of_roads, road_density
from metricdp.traces.times import checked_times

__all__ = ["Movement"]

# With a symmetric kernel k(y − x) √(π(y) / π(x)) satisfies detailed balance: movement then leaves the prior as it is.
EXPONENT = 0.5
RESTART = 0.01

# The chance to stay where one is, so that every cell has somewhere to go.
_LEAST_STAY = 1e-9


@dataclass(frozen=True, eq=False, repr=False, init=False)
class Movement:
    """A public model of movement: where people are, and how far they are from there after some seconds.

    After a lag of t seconds somebody in cell x is in cell y with probability

        T_t(x → y) = (1 − r) k_t(y − x) π(y)^a / Z_t(x) + r π(y),    Z_t(x) = Σ_y k_t(y − x) π(y)^a

    with π the prior, k_t the kernel of displacements, a the `exponent` and r the chance to `restart`: rows sum to 1.
    Between the lags that have a kernel, k_t is the mixture of its two neighbours that is linear in t, starting at
    k_0 = "did not move". Beyond the longest lag the chance to restart grows linearly and reaches 1 at twice that lag
    (`forgets_after_s`): after so long a gap the past says nothing, and a trace starts again.

    All of it must come from public data: nothing here is drawn with noise.

    Parameters
    ----------
    raster : Raster
        The cells.
    prior : (cells,) array
        π: how likely each cell is when nothing is known; positive, scaled to sum to 1.
    kernels : arrays of odd sides
        k_t for each lag: weights of displacements in cells; that of staying, in the middle, is positive.
    lags_s : increasing floats
        The lags, in seconds.
    exponent : float
        a: how strongly likely cells attract. With 0 movement ignores the prior. With 1/2, the default, and a symmetric
        kernel k √(π(y) / π(x)) is in detailed balance: movement alone would leave the prior as it is.
    restart : float
        r, which allows for what kernels have not seen, so that no sequence of reports is impossible.

    Examples
    --------
    >>> raster = Raster([0, 0], 1.0, (3, 1))
    >>> movement = Movement(raster, [1, 1, 1], [np.array([[1], [2], [1]])], [60], exponent=0, restart=1e-9)
    >>> movement.predict([1, 0, 0], seconds=60).round(3).tolist()
    [0.667, 0.333, 0.0]
    """

    raster: Raster
    prior: FloatArray
    kernels: tuple[FloatArray, ...]
    lags_s: tuple[float, ...]
    exponent: float
    restart: float

    def __init__(
        self,
        raster: Raster,
        prior: ArrayLike,
        kernels: Sequence[ArrayLike],
        lags_s: Sequence[float],
        *,
        exponent: float = EXPONENT,
        restart: float = RESTART,
    ) -> None:
        weight = unit_sum("prior", prior, raster.n_cells)
        if weight.min() <= 0:
            where = int(weight.argmin())
            raise reject("prior", "positive everywhere", f"{weight[where]:g} at index {where}")
        lags = tuple(positive("lags_s", lag) for lag in lags_s)
        if not lags or any(second <= first for first, second in pairwise(lags)):
            raise reject("lags_s", "increasing and at least one", list(lags))
        if len(kernels) != len(lags):
            raise reject("kernels", f"one for each of the {len(lags)} lags", f"{len(kernels)} of them")
        fields = {
            "raster": raster,
            "prior": weight,
            "kernels": tuple(_checked_kernel(one, raster) for one in kernels),
            "lags_s": lags,
            "exponent": _share("exponent", exponent, zero=True),
            "restart": _share("restart", restart, zero=False),
        }
        self.__setstate__(fields)

    @classmethod
    def fit(
        cls,
        table: Any,
        seconds: float = 60,
        cell_km: float = 0.2,
        *,
        bounds: ArrayLike | None = None,
        longest_s: float = 3600,
        longest_gap_s: float = 180,
        id_column: str = "id",
        time_column: str = "unix_s",
        exponent: float = EXPONENT,
        restart: float = RESTART,
    ) -> Self:
        """Learn from public traces: the share of time in each cell, and displacements after 1, 2, 4, … steps.

        Parameters
        ----------
        table : table of pandas, polars or Arrow, or dictionary of columns
            Fixes with the columns `id` (of the trace), `unix_s`, and longitude and latitude under one of their usual
            names, in any order. They must be public: the model holds counts of them without noise.
        seconds : float
            The shortest lag. Positions are interpolated to multiples of it.
        cell_km : float
            The side of a cell. A fraction of 1/ε is fine enough.
        bounds : (2, 2) array, optional
            West and south, then east and north, in degrees. The box of all fixes by default, which stray fixes widen.
        longest_s : float
            The longest lag that is learned, at most.
        longest_gap_s : float
            Fixes further apart in time are not joined.
        id_column, time_column : str
            What the columns are called. Times may also be timestamps.
        exponent, restart : float
            As for `Movement`.
        """
        fixes = read_traces(table, id_column, time_column)
        raster = raster_about(fixes, bounds, cell_km)
        positions = resampled(fixes, raster, seconds, longest_gap_s)
        prior = occupancy(positions, raster)
        ticks = _doubling(seconds, longest_s)
        kernels = kernels_of(positions, raster, ticks)
        lags = [lag * float(seconds) for lag in ticks[: len(kernels)]]
        return cls(raster, prior, kernels, lags, exponent=exponent, restart=restart)

    @classmethod
    def from_roads(
        cls,
        roads: Any,
        speed_km_h: float = 30,
        *,
        seconds: float = 60,
        cell_km: float = 0.2,
        pause: float = 0.3,
        longest_s: float = 1800,
        exponent: float = EXPONENT,
        restart: float = RESTART,
    ) -> Self:
        """Return a model without traces: people are on roads and go anywhere that they can reach at a speed.

        Parameters
        ----------
        roads : RoadNetwork or Problem
            A city, whose prior is the length of road in each cell, or a problem in degrees, whose records have one.
        speed_km_h : float
            As the crow flies. After t seconds people are anywhere within this speed times t, evenly.
        seconds, cell_km, longest_s : float
            The shortest lag, the side of a cell, and the longest lag at most.
        pause : float
            The share of people who stay in their cell for one such lag; after longer ones the share is smaller.
        exponent, restart : float
            As for `Movement`.
        """
        raster = raster_of_roads(roads, cell_km)
        ticks = _doubling(seconds, longest_s)
        lags = [lag * float(seconds) for lag in ticks]
        reach_km = positive("speed_km_h", speed_km_h) / 3600 * np.array(lags)
        stay = fraction("pause", pause) ** np.array(ticks)
        kernels = [disc_kernel(raster, reach, still) for reach, still in zip(reach_km, stay, strict=True)]
        return cls(raster, road_density(roads, raster), kernels, lags, exponent=exponent, restart=restart)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a model that `save` wrote; a damaged file raises `InvalidInputError`."""
        return read_model(path, cls._from_parts)

    def save(self, path: str | Path) -> None:
        """Write the model to a file."""
        write_model(path, *self._parts())

    def _parts(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return what a file holds, fields and arrays."""
        fields = {
            "corner": self.raster.corner.tolist(),
            "cell_km": self.raster.cell_km,
            "shape": list(self.raster.shape),
            "projection": projection_fields(self.raster.projection),
            "lags_s": list(self.lags_s),
            "exponent": self.exponent,
            "restart": self.restart,
        }
        return fields, {"prior": self.prior} | {f"kernel_{i}": kernel for i, kernel in enumerate(self.kernels)}

    @classmethod
    def _from_parts(cls, fields: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Self:
        plane = projection_from(fields["projection"])
        raster = Raster(fields["corner"], fields["cell_km"], fields["shape"], plane)
        lags = fields["lags_s"]
        kernels = [arrays[f"kernel_{i}"] for i in range(len(lags))]
        options = {name: fields[name] for name in ("exponent", "restart")}
        model = cls(raster, arrays["prior"], kernels, lags, **options)
        if (model._parts()[0], set(model._parts()[1])) != (fields, set(arrays)):
            raise InvalidInputError("its fields are not those that its model would be saved with")
        return model

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        freeze_arrays(self)
        for kernel in self.kernels:
            kernel.flags.writeable = False

    def __repr__(self) -> str:
        nx, ny = self.raster.shape
        lags = ", ".join(f"{lag:g}" for lag in self.lags_s)
        return f"Movement({nx} x {ny} cells of {self.raster.cell_km:g} km, lags of {lags} s)"

    @property
    def seconds(self) -> float:
        """The shortest lag: the step between reports unless times are given."""
        return self.lags_s[0]

    @property
    def forgets_after_s(self) -> float:
        """The gap after which a trace starts again from the prior."""
        return 2 * self.lags_s[-1]

    def predict(self, belief: ArrayLike, seconds: float) -> FloatArray:
        """Return Σ_x belief(x) T(x → y): where somebody is `seconds` later, (…, cells) as `belief`."""
        given = self._on_cells("belief", belief)
        shares, restart = self._shares(seconds)
        total = given.sum(axis=-1, keepdims=True)
        if restart >= 1:
            return total * self.prior
        moved = self._attraction * self._convolved(given / self._normaliser(shares), shares)
        return (1 - restart) * moved + restart * total * self.prior

    def look_back(self, values: ArrayLike, seconds: float) -> FloatArray:
        """Return Σ_y T(x → y) values(y): what is expected `seconds` later of somebody who is in x now, (…, cells)."""
        given = self._on_cells("values", values)
        shares, restart = self._shares(seconds)
        anywhere = (given @ self.prior)[..., None]
        if restart >= 1:
            return np.broadcast_to(anywhere, given.shape).copy()
        expected = self._convolved(self._attraction * given, shares, reverse=True) / self._normaliser(shares)
        return (1 - restart) * expected + restart * anywhere

    def filter(self, log_likelihoods: ArrayLike, unix_s: ArrayLike | None = None) -> FloatArray:
        """Return Pr[cell at time t | reports up to t].

        Parameters
        ----------
        log_likelihoods : (…, T, cells) array
            ln Pr[report t | cell], up to a constant for each report; -inf where a report is impossible. Leading axes
            are separate traces with the same times.
        unix_s : (T,) array, optional
            When the reports were made, in seconds, increasing. Every `seconds` of the model by default.

        Returns
        -------
        (…, T, cells) array, sums of 1 over the cells. At t = 0 it is the posterior of one report under the prior.
        """
        likelihoods, gaps = self._checked_trace(log_likelihoods, unix_s)
        beliefs = np.empty_like(likelihoods)
        belief = np.broadcast_to(self.prior, beliefs[..., 0, :].shape)
        for t, gap in enumerate(gaps):
            if t > 0:
                belief = self.predict(belief, gap)
            belief = beliefs[..., t, :] = normalised(belief * likelihoods[..., t, :])
        return beliefs

    def smooth(self, log_likelihoods: ArrayLike, unix_s: ArrayLike | None = None) -> FloatArray:
        """Return Pr[cell at time t | all reports]: the filter forwards, then what later reports say, backwards.

        Parameters and shape as for `filter`; at the last time both are the same.
        """
        likelihoods, gaps = self._checked_trace(log_likelihoods, unix_s)
        beliefs = self.filter(log_likelihoods, unix_s)
        later = np.ones_like(beliefs[..., 0, :])
        for t in range(len(gaps) - 1, 0, -1):
            later = self.look_back(later * likelihoods[..., t, :], gaps[t])
            later /= later.max(axis=-1, keepdims=True)  # only ratios count; products of many would underflow
            beliefs[..., t - 1, :] = normalised(beliefs[..., t - 1, :] * later)
        return beliefs

    def _checked_trace(self, log_likelihoods: ArrayLike, unix_s: ArrayLike | None) -> tuple[FloatArray, FloatArray]:
        """Return likelihoods with a largest value of 1 for each report, and the gap before each report."""
        logs = self._on_cells("log_likelihoods", log_likelihoods)
        if logs.ndim < 2 or not logs.shape[-2]:
            raise reject("log_likelihoods", "of shape (…, T, cells) with T at least 1", f"shape {logs.shape}")
        n_reports = logs.shape[-2]
        times = self.seconds * np.arange(n_reports) if unix_s is None else checked_times(unix_s, n_reports)
        return scaled_likelihoods(logs), np.diff(times, prepend=times[0])

    def _on_cells(self, name: str, values: ArrayLike) -> FloatArray:
        array = np.asarray(values, dtype=np.float64)
        if not array.ndim or array.shape[-1] != self.raster.n_cells:
            rule = f"of shape (…, {self.raster.n_cells}), one value for each cell"
            raise reject(name, rule, f"shape {array.shape}")
        return array

    def _shares(self, seconds: float) -> tuple[tuple[tuple[int, float], ...], float]:
        """Return how much each kernel has in the mixture after so many seconds (-1: no movement), and the restart."""
        gap = _gap(seconds)
        if gap >= self.lags_s[-1]:
            span = self.forgets_after_s - self.lags_s[-1]
            forgotten = min(1.0, (gap - self.lags_s[-1]) / span)
            return ((len(self.lags_s) - 1, 1.0),), self.restart + (1 - self.restart) * forgotten
        above = int(np.searchsorted(self.lags_s, gap, side="right"))
        low, high = (0.0 if above == 0 else self.lags_s[above - 1]), self.lags_s[above]
        share = (gap - low) / (high - low)
        both = ((above - 1, 1 - share), (above, share))
        # No time, no restart: somebody is where they are.
        return tuple((which, part) for which, part in both if part > 0), self.restart * min(1.0, gap / self.seconds)

    @cached_property
    def _attraction(self) -> FloatArray:
        return np.asarray(self.prior / self.prior.max()) ** self.exponent

    @cached_property
    def _fft_shape(self) -> tuple[int, int]:
        """Sides at which a periodic convolution does not wrap into the cells: cells plus the kernels' largest reach."""
        reach = np.max([np.array(kernel.shape) // 2 for kernel in self.kernels], axis=0)
        width, height = (
            fft.next_fast_len(int(n + r), real=True) for n, r in zip(self.raster.shape, reach, strict=True)
        )
        return width, height

    @cached_property
    def _spectra(self) -> list[NDArray[np.complex128]]:
        """The kernels' Fourier transforms, no displacement at the origin."""
        spectra = []
        for kernel in self.kernels:
            periodic = np.zeros(self._fft_shape)
            rows, columns = (np.arange(side) - side // 2 for side in kernel.shape)
            # The kernel may be longer than a period; what wraps onto each other must be added, not overwritten.
            np.add.at(periodic, (rows[:, None] % periodic.shape[0], columns[None] % periodic.shape[1]), kernel)
            spectra.append(fft.rfft2(periodic))
        return spectra

    @cached_property
    def _normalisers(self) -> list[FloatArray]:
        """Z of each kernel, at least what those who stay contribute; rounding must not take that away."""
        found = []
        for which, kernel in enumerate(self.kernels):
            stay = kernel[kernel.shape[0] // 2, kernel.shape[1] // 2]
            convolved = self._convolved(self._attraction, ((which, 1.0),), reverse=True)
            found.append(np.maximum(convolved, stay * self._attraction))
        return found

    def _normaliser(self, shares: tuple[tuple[int, float], ...]) -> FloatArray:
        parts = (part * (self._attraction if which < 0 else self._normalisers[which]) for which, part in shares)
        return np.asarray(sum(parts))

    def _convolved(
        self, values: FloatArray, shares: tuple[tuple[int, float], ...], *, reverse: bool = False
    ) -> FloatArray:
        """Return values convolved with a mixture of kernels, or correlated with it if `reverse`; never below 0."""
        spectrum: Any = sum(part * (1.0 if which < 0 else self._spectra[which]) for which, part in shares)
        nx, ny = self.raster.shape
        waves = fft.rfft2(values.reshape(*values.shape[:-1], nx, ny), s=self._fft_shape)
        waves *= np.conj(spectrum) if reverse else spectrum
        back = fft.irfft2(waves, s=self._fft_shape)[..., :nx, :ny].reshape(values.shape)
        # Rounding leaves about 1e-16 of the largest value, of either sign, where nothing should be.
        return np.maximum(back, 0.0)


def normalised(weights: FloatArray) -> FloatArray:
    """Return weights that sum to 1 over the last axis."""
    total = weights.sum(axis=-1, keepdims=True)
    if not (total > 0).all():
        msg = "A report is impossible from every cell of the movement model; is it for another place or mechanism?"
        raise InvalidInputError(msg)
    return np.asarray(weights / total)


def scaled_likelihoods(logs: FloatArray) -> FloatArray:
    """Return e^logs with a largest value of 1 over the last axis: a common factor changes no posterior."""
    highest = logs.max(axis=-1, keepdims=True)
    if np.isnan(logs).any() or not np.isfinite(highest).all():
        raise reject("log_likelihoods", "numbers, with one above -inf for each report", "NaN, +inf, or only -inf")
    return np.exp(logs - highest)


def _checked_kernel(kernel: ArrayLike, raster: Raster) -> FloatArray:
    weights = finite_array("kernels", kernel)
    if weights.ndim != 2 or not all(side % 2 for side in weights.shape):
        raise reject("kernels", "two-dimensional with odd sides", f"shape {weights.shape}")
    if any(side > 2 * n - 1 for side, n in zip(weights.shape, raster.shape, strict=True)):
        longest = tuple(2 * n - 1 for n in raster.shape)
        raise reject("kernels", f"no larger than {longest}, from one end of the cells to the other", f"{weights.shape}")
    scaled = unit_sum("kernels", weights.ravel(), weights.size)
    if scaled[scaled.size // 2] < _LEAST_STAY:
        # Otherwise nobody could leave the last cell of a row when the kernel leads out of it.
        raise reject("kernels", f"at least {_LEAST_STAY:g} of their sum in the middle", f"{scaled[scaled.size // 2]:g}")
    return scaled.reshape(weights.shape)


def _share(name: str, value: float, *, zero: bool) -> float:
    rule = "at least 0 and below 1" if zero else "above 0 and below 1"
    number = float(finite_array(name, value)) if np.ndim(value) == 0 else np.nan
    if not (0 <= number < 1 and (zero or number > 0)):
        raise reject(name, rule, repr(value))
    return number


def _doubling(seconds: float, longest_s: float) -> list[int]:
    """Return lags as numbers of steps, 1, 2, 4, …, none but the first longer than `longest_s`."""
    most = positive("longest_s", longest_s) / positive("seconds", seconds)
    return [2**power for power in range(int(np.log2(max(1.0, most))) + 1)]


def _gap(seconds: float) -> float:
    gap = float(seconds)
    if not (np.isfinite(gap) and gap >= 0):
        raise reject("seconds", "a finite number of at least 0", repr(seconds))
    return gap
