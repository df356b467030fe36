// What the page computes itself, from probabilities that the service computed.

/** The ℓ_p norm of a vector. */
export function norm(vector, p) {
  const sizes = vector.map(Math.abs);
  if (p === Infinity) return Math.max(...sizes);
  if (p === 1) return sizes.reduce((sum, size) => sum + size, 0);
  if (p === 2) return Math.hypot(...sizes);
  const largest = Math.max(...sizes);
  if (largest === 0) return 0;
  // Scaled first: powers of small numbers underflow for large p.
  return largest * sizes.reduce((sum, size) => sum + (size / largest) ** p, 0) ** (1 / p);
}

export function distance(a, b, p = 2) {
  return norm(a.map((value, axis) => value - b[axis]), p);
}

/** Corners of a closed curve around the unit ball of the plane's ℓ_p norm. */
export function unitBall(p, corners = 240) {
  return Array.from({ length: corners }, (_, index) => {
    const angle = (2 * Math.PI * index) / corners;
    const ray = [Math.cos(angle), Math.sin(angle)];
    const length = norm(ray, p);
    return [ray[0] / length, ray[1] / length];
  });
}

/** The smallest Euclidean radius about `point` within which at least `share` of the reports lie. */
export function accuracyRadius(point, outputs, probabilities, share = 0.95) {
  const reports = outputs.map((place, id) => [distance(point, place), probabilities[id]]);
  reports.sort((a, b) => a[0] - b[0]);
  let sum = 0;
  for (const [far, probability] of reports) {
    sum += probability;
    // Sums of rounded numbers may miss the share by a few units in the last place.
    if (sum >= share - 1e-12) return far;
  }
  return reports.at(-1)[0];
}

/** How many times likelier a report is from one place than from the other; at least 1, whichever way round. */
export function ratio(p, q) {
  if (p === q) return 1;
  return p > q ? p / q : q / p;
}

/** What two rows of probabilities give away about which of the two places it was, so far apart, with what is allowed. */
export function comparison(here, there, apart, exponent) {
  const ratios = here.map((p, id) => ratio(p, there[id]));
  let worst = 0;
  ratios.forEach((value, id) => {
    if (value > ratios[worst]) worst = id;
  });
  return {
    ratios,
    worst,
    apart,
    exponent,
    bound: Math.exp(exponent),
    used: exponent > 0 ? Math.log(ratios[worst]) / exponent : 0,
    // Of two places thought equally likely before, e^{εd} to 1 is the most that a report can say for one.
    mostBelief: 1 / (1 + Math.exp(-exponent)),
  };
}

/** Belief in the first place after a report, if both were equally likely before; null if neither could send it. */
export function belief(p, q) {
  return p + q > 0 ? p / (p + q) : null;
}

/** Output ids, the likeliest first. */
export function ranked(probabilities) {
  return probabilities.map((_, id) => id).sort((a, b) => probabilities[b] - probabilities[a] || a - b);
}
