// Numbers as people read them.

const THIN = "\u202f";
const UP = "⁰¹²³⁴⁵⁶⁷⁸⁹";

export function percent(share) {
  const value = 100 * share;
  if (value === 0) return `0${THIN}%`;
  if (value < 0.01) return `<${THIN}0.01${THIN}%`;
  const digits = value >= 9.995 ? 1 : 2;
  return `${value.toFixed(digits)}${THIN}%`;
}

/** For beliefs: never round up to certainty. */
export function chance(share) {
  if (share > 0.9995 && share < 1) return `more than 99.9${THIN}%`;
  return `${(100 * share).toFixed(share > 0.99 ? 1 : 0)}${THIN}%`;
}

export function exactPercent(share) {
  return `${Number((100 * share).toPrecision(6))}${THIN}%`;
}

/** A length in the mechanism's unit; kilometres become metres where that reads better. */
export function length(value, unit) {
  if (unit !== "km") return `${Number(value.toPrecision(3))}`;
  if (value < 0.9995) return `${Math.round(1000 * value)}${THIN}m`;
  return `${value.toFixed(value < 9.995 ? 2 : 1)}${THIN}km`;
}

export function times(value) {
  if (value === Infinity) return "∞";
  if (value >= 1e5) {
    const [digits, power] = value.toExponential(1).split("e+");
    return `${digits}·10${[...power].map((digit) => UP[digit]).join("")}`;
  }
  if (value >= 100) return Math.round(value).toLocaleString("en-GB");
  return value.toFixed(value < 9.995 ? 2 : 1);
}

export function budget(epsilon, unit) {
  return `ε = ${epsilon}${unit ? ` per ${unit}` : ""}`;
}

/** The ε of a mechanism, or its range where it varies over the box. */
export function budgetOf({ epsilon, epsilon_map: range, unit }) {
  if (!range) return budget(epsilon, unit);
  return `ε = ${upward(range.least)} to ${upward(range.most)}${unit ? ` per ${unit}` : ""}`;
}

/** An ε in three digits that is not below it: whatever is read off it is kept. */
export function upward(epsilon) {
  const unit = 10 ** (Math.floor(Math.log10(epsilon)) - 2);
  const near = Number(epsilon.toPrecision(3));
  return near >= epsilon ? near : Number((near + unit).toPrecision(3));
}

export const count = (value) => value.toLocaleString("en-GB");

/** Compass words for a step on the map. */
export function direction([east, north]) {
  const names = ["east", "north-east", "north", "north-west", "west", "south-west", "south", "south-east"];
  return names[Math.round(Math.atan2(north, east) / (Math.PI / 4) + 8) % 8];
}

export function shapeName(p, nAxes) {
  if (nAxes === 1) return "interval";
  if (nAxes > 2) return "region";
  if (p === 2) return "circle";
  if (p === 1) return "diamond";
  return p === Infinity ? "square" : "rounded shape";
}
