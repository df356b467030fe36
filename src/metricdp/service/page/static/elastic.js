// Mechanisms whose ε varies over the box: the radius around a place, what a way costs, and a comparison with one ε.

import { distance, norm } from "./measure.js";

/** How far another place may be from a point, on the map, so that no report is more than e times likelier from either. */
export function protectionRadius(mechanism, point) {
  return mechanism.cells ? localRadius(mechanism, point) : 1 / mechanism.plane_epsilon - mechanism.rounding;
}

/** What the promise allows between two places, as an exponent; where ε varies, along the straight way. */
export function exponentBetween(mechanism, here, there) {
  const { plane_epsilon: most, rounding, p } = mechanism;
  if (mechanism.cells) return wayCost(mechanism, here, there) + most * rounding;
  return most * (distance(here, there, p) + rounding);
}

/** The cells of a map as a flat list of boxes with their ε, per unit of the plane. */
export function cellsOf({ breakpoints, plane_values: values }) {
  const cells = [];
  const visit = (inner, place) => {
    if (Array.isArray(inner)) inner.forEach((one, at) => visit(one, [...place, at]));
    else {
      const low = place.map((at, axis) => breakpoints[axis][at]);
      const high = place.map((at, axis) => breakpoints[axis][at + 1]);
      cells.push({ low, high, epsilon: inner });
    }
  };
  visit(values, []);
  return cells;
}

/**
 * How far around a point no report is more than e times likelier: with f(s) the largest ε within s of the point, the
 * straight way to a place at distance R costs at most the integral of f from 0 to R. Rounding costs some of it.
 */
export function localRadius({ cells, p, rounding, plane_epsilon: most }, point) {
  const far = cells.map(({ low, high, epsilon }) => {
    const gaps = point.map((value, axis) => Math.max(low[axis] - value, value - high[axis], 0));
    return [norm(gaps, p), epsilon];
  });
  far.sort((a, b) => a[0] - b[0]);
  let left = 1 - rounding * most;
  let largest = 0;
  let reached = 0;
  for (const [distance, epsilon] of far) {
    const cost = largest * (distance - reached);
    if (cost > left) break;
    left -= cost;
    reached = distance;
    largest = Math.max(largest, epsilon);
  }
  return Math.max(reached + left / largest, 0);
}

/** ∫ε along the straight way between two points; where it runs along a border, the larger ε of both sides. */
export function wayCost({ cells, map, p }, from, to) {
  const move = to.map((value, axis) => value - from[axis]);
  const cuts = [0, 1];
  map.breakpoints.forEach((borders, axis) => {
    for (const border of borders) {
      const share = (border - from[axis]) / move[axis];
      if (share > 0 && share < 1) cuts.push(share);
    }
  });
  cuts.sort((a, b) => a - b);
  let mean = 0;
  for (let at = 1; at < cuts.length; at++) {
    const middle = from.map((value, axis) => value + ((cuts[at] + cuts[at - 1]) / 2) * move[axis]);
    mean += (cuts[at] - cuts[at - 1]) * largestAt(cells, middle);
  }
  return mean * norm(move, p);
}

function largestAt(cells, point) {
  let found = 0;
  for (const { low, high, epsilon } of cells) {
    const inside = point.every((value, axis) => value >= low[axis] - 1e-9 && value <= high[axis] + 1e-9);
    if (inside) found = Math.max(found, epsilon);
  }
  return found;
}

/** The ε that is kept everywhere: what a mechanism with one ε must have to promise as much. */
export const leastEpsilon = (mechanism) => mechanism.epsilon_map?.least ?? mechanism.epsilon;

/** The best mechanism with one ε that promises as much everywhere as the map does where it promises most. */
export function samePromise(group, current) {
  const least = leastEpsilon(current);
  const alike = group.filter((one) => !one.epsilon_map && one.loss !== null && Math.abs(one.epsilon / least - 1) < 1e-9);
  return alike.sort((a, b) => a.loss - b.loss)[0] ?? null;
}

/**
 * The ε at which one ε everywhere loses as much as the map, between two files of the same method, by straight lines in
 * ln ε; and the share of the box on which the map has a larger protection radius.
 */
export function sameLoss(group, current) {
  if (current.loss === null) return null;
  const one = group.filter((other) => !other.epsilon_map && other.method === current.method && other.loss !== null);
  one.sort((a, b) => a.epsilon - b.epsilon);
  const at = one.findIndex((other, index) => index > 0 && other.loss <= current.loss && one[index - 1].loss >= current.loss);
  if (at < 0) return null;
  const [before, after] = [one[at - 1], one[at]];
  const share = before.loss === after.loss ? 0 : (before.loss - current.loss) / (before.loss - after.loss);
  const epsilon = Math.exp(Math.log(before.epsilon) + share * Math.log(after.epsilon / before.epsilon));
  const scale = current.plane_epsilon / current.epsilon;
  let [better, whole] = [0, 0];
  for (const { low, high, epsilon: local } of current.cells) {
    const area = low.reduce((product, value, axis) => product * (high[axis] - value), 1);
    whole += area;
    if (local < epsilon * scale) better += area;
  }
  return { epsilon, radius: 1 / epsilon, better: better / whole };
}
