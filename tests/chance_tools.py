"""How tests judge draws from the operating system's generator, which nobody can repeat."""

import numpy as np
from scipy.stats import binom

# Such a test may fail by chance, once in a thousand million runs.
RARE = 1e-9


def follow(counts, chances):
    """Whether counts are those of draws with the given chances, by the exact binomial tails of each outcome.

    Approximations such as chi-square are wrong by orders of magnitude so far out. Draws that each have chances of their
    own, of which the mean is given, are scattered less (Hoeffding 1956), and fail by chance even more rarely.
    """
    counts, chances = np.asarray(counts), np.clip(chances, 0, 1)
    total = counts.sum()
    tails = np.minimum(binom.cdf(counts, total, chances), binom.sf(counts - 1, total, chances))
    return bool((tails >= RARE / (2 * len(counts))).all())
