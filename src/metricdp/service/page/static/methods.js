// The choice of a mechanism: a slider over ε and a table of methods, for the files that share one problem.

import { isLocal } from "./api.js";
import { leastEpsilon, protectionRadius } from "./elastic.js";
import { budgetOf, count, length, percent, upward } from "./words.js";

// Boxes that differ by less than this share of their sides are one box: some mechanisms round theirs to a lattice.
const SAME_BOX = 1e-5;

/** Sort mechanisms into groups with the same outputs, called the same, box, norm and projection, in the service's order. */
export function grouped(mechanisms) {
  const groups = [];
  for (const one of mechanisms) {
    const group = groups.find(([first]) => sameProblem(first, one));
    if (group) group.push(one);
    else groups.push([one]);
  }
  return groups;
}

function sameProblem(a, b) {
  const exact = (one) => JSON.stringify([one.outputs_projected, one.places, String(one.p), one.projection]);
  if (exact(a) !== exact(b)) return false;
  const [low, high] = a.bounds;
  return a.bounds.every((corner, which) =>
    corner.every((value, axis) => Math.abs(value - b.bounds[which][axis]) <= SAME_BOX * (high[axis] - low[axis])),
  );
}

export function groupTitle([first]) {
  const [low, high] = first.bounds;
  const sides = low.map((value, axis) => Number((high[axis] - value).toPrecision(2))).join(" × ");
  const norm = first.p === 2 ? "" : `, p = ${first.p === Infinity ? "∞" : first.p}`;
  return `${count(first.n_outputs)} places, ${sides}${first.unit ? ` ${first.unit}` : ""}${norm} (${first.id})`;
}

/** A method; those with a map of ε are a kind of their own. */
const kindOf = (one) => `${one.method}${one.epsilon_map ? " with a map" : ""}`;

/** The ε's at which a kind was fitted, ascending; a map counts with its least, the promise that it keeps everywhere. */
export function budgets(group, kind) {
  const values = group.filter((one) => kindOf(one) === kind).map(leastEpsilon);
  return [...new Set(values)].sort((a, b) => a - b);
}

/** The mechanism of a kind whose ε is nearest on a logarithmic scale; among equals the one with the most similar id. */
export function nearest(group, kind, epsilon, id = "") {
  const far = (one) => Math.abs(Math.log(leastEpsilon(one) / epsilon));
  const alike = (one) => [...one.id].findIndex((letter, at) => letter !== id[at]) >>> 0;
  return group.filter((one) => kindOf(one) === kind).sort((a, b) => far(a) - far(b) || alike(b) - alike(a))[0];
}

export class Methods {
  constructor(parts, react) {
    Object.assign(this, parts);
    this.react = react;
    this.slider.addEventListener("input", () => {
      const { group, current } = this;
      const epsilon = budgets(group, kindOf(current))[this.slider.value];
      react.choose(nearest(group, kindOf(current), epsilon, current.id));
    });
    this.table.tBodies[0].addEventListener("click", (event) => {
      const row = event.target.closest("tr[data-mechanism]");
      const picked = row && this.group.find((one) => one.id === row.dataset.mechanism);
      if (picked) react.choose(picked);
    });
  }

  draw(group, current) {
    Object.assign(this, { group, current });
    this.drawSlider();
    this.drawTable();
    this.drawProof();
  }

  drawSlider() {
    const { slider, ticks, value, current } = this;
    const values = budgets(this.group, kindOf(current));
    const now = leastEpsilon(current);
    slider.max = values.length - 1;
    slider.value = values.indexOf(now);
    slider.disabled = values.length < 2;
    slider.dataset.epsilon = current.epsilon;
    const words = budgetOf(current);
    slider.setAttribute("aria-valuetext", `${words}, protection radius ${radiusWords(current)}`);
    value.textContent = words;
    ticks.replaceChildren(
      ...values.map((epsilon) => {
        const tick = document.createElement("span");
        tick.textContent = current.epsilon_map ? upward(epsilon) : epsilon;
        tick.classList.toggle("now", epsilon === now);
        return tick;
      }),
    );
    ticks.classList.toggle("alone", values.length === 1);
  }

  drawTable() {
    const { group, current, table } = this;
    const focused = table.contains(document.activeElement);
    const kinds = [...new Set(group.map(kindOf))];
    const rows = kinds.flatMap((kind) => {
      const same = group.filter((one) => kindOf(one) === kind && leastEpsilon(one) === leastEpsilon(current));
      return same.length > 0 ? same : [nearest(group, kind, leastEpsilon(current))];
    });
    rows.sort((a, b) => (a.loss ?? Infinity) - (b.loss ?? Infinity));
    const twice = (one) => rows.filter((other) => kindOf(other) === kindOf(one)).length > 1;
    table.tBodies[0].replaceChildren(...rows.map((one) => this.row(one, twice(one))));
    this.lossHead.textContent = current.unit ? `Loss, ${current.unit}` : "Loss";
    if (focused) table.querySelector("[aria-pressed=true]")?.focus();
  }

  row(one, byName) {
    const { current } = this;
    const row = document.createElement("tr");
    row.dataset.mechanism = one.id;
    row.classList.toggle("chosen", one.id === current.id);
    const head = document.createElement("th");
    head.scope = "row";
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = byName ? one.id : one.label;
    button.title = `${one.id}, method ${one.method}`;
    button.setAttribute("aria-pressed", one.id === current.id);
    head.append(button);
    if (one.epsilon_map || leastEpsilon(one) !== leastEpsilon(current)) {
      const other = document.createElement("small");
      const range = one.epsilon_map;
      other.textContent = range ? `ε from ${upward(range.least)} to ${upward(range.most)}, by place` : `at ε = ${one.epsilon}`;
      head.append(other);
    }
    const over = one.loss !== null && one.lower_bound > 0 ? one.loss / one.lower_bound - 1 : null;
    const cells = [
      [one.loss === null ? "–" : one.loss.toPrecision(3), "number"],
      [over === null ? "–" : `+${(100 * over).toFixed(1)}\u202f%`, "number"],
      [percentDown(one.certificate.worst_ratio), "number proved"],
      [one.sha256.slice(0, 6), "hash"],
    ];
    row.append(
      head,
      ...cells.map(([text, name]) => {
        const cell = document.createElement("td");
        cell.textContent = text;
        cell.className = name;
        return cell;
      }),
    );
    row.lastElementChild.title = `SHA-256 ${one.sha256}`;
    return row;
  }

  drawProof() {
    const { certificate, sha256, lower_bound: bound, loss, unit } = this.current;
    const line = (name, text) => {
      const element = document.createElement("p");
      element.className = name;
      element.textContent = text;
      return element;
    };
    const title = line("proved-title", certificate.holds ? `Proved private by this ${isLocal() ? "device" : "service"}` : "Not proved private");
    const parts = [title, line("claim", certificate.claim)];
    if (loss !== null && bound > 0) {
      const least = `${bound.toPrecision(3)}${unit ? ` ${unit}` : ""}`;
      parts.push(line("least", `No private mechanism with these places can lose less than ${least}, the file says.`));
    }
    const hash = line("sha", "");
    const code = document.createElement("code");
    code.textContent = sha256;
    hash.append("SHA-256 ", code);
    parts.push(hash);
    this.proof.replaceChildren(...parts);
  }
}

function radiusWords(mechanism) {
  const { epsilon_map: range, unit } = mechanism;
  if (!range) return length(protectionRadius(mechanism), unit);
  return `${length(range.radius_least, unit)} to ${length(range.radius_most, unit)}, by place`;
}

/** A share as a percentage that is never rounded up to 100 %. */
function percentDown(share) {
  return share < 1 && share > 0.9999 ? "99.99\u202f%" : percent(share);
}
