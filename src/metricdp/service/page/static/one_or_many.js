// One ε everywhere, or one for each place: the same two questions as a panel.

import { sameLoss, samePromise } from "./elastic.js";
import { length, percent, upward } from "./words.js";

/** Fill the panel for a mechanism with a map of ε, and hide it for others. */
export function drawOneOrMany(panel, group, current) {
  panel.hidden = !current.cells;
  if (panel.hidden) return;
  panel.replaceChildren(element("h3", "One ε everywhere, or this map?"), promisePart(group, current), lossPart(group, current));
}

function promisePart(group, current) {
  const { unit, epsilon_map: range } = current;
  const part = document.createElement("div");
  const other = samePromise(group, current);
  const far = length(range.radius_most, unit);
  if (!other || current.loss === null) {
    part.append(element("p", `No other file here has one ε of ${upward(range.least)}, which is what keeps this map's promise (${far}) with one ε.`));
    return part;
  }
  const less = 1 - current.loss / other.loss;
  const words =
    `Same promise: with one ε it takes ${upward(range.least)} everywhere (${far}) to keep what this map promises where it ` +
    `promises most. The best such file, ${other.label}, loses ${figure(other.loss, unit)}; the map loses ` +
    `${figure(current.loss, unit)}, ${less >= 0 ? `${percent(less)} less` : `${percent(-less)} more`}.`;
  Object.assign(part.dataset, { other: other.id, less });
  part.append(element("p", words), bars([["one ε", other.loss, ""], ["map", current.loss, "own"]], unit));
  return part;
}

function lossPart(group, current) {
  const { unit, epsilon_map: range } = current;
  const part = document.createElement("div");
  const found = sameLoss(group, current);
  if (!found) {
    part.append(element("p", "Same loss: the files here with one ε do not lose both more and less than this map."));
    return part;
  }
  Object.assign(part.dataset, { epsilon: found.epsilon, better: found.better });
  part.append(
    element(
      "p",
      `Same loss: one ε of about ${found.epsilon.toPrecision(2)} loses as much (between two files) and protects ` +
        `${length(found.radius, unit)} everywhere. The map protects ${length(range.radius_least, unit)} to ` +
        `${length(range.radius_most, unit)}: farther on ${percent(found.better)} of the box.`,
    ),
  );
  return part;
}

function bars(rows, unit) {
  const most = Math.max(...rows.map(([, value]) => value));
  const list = element("dl", "");
  list.className = "losses";
  for (const [name, value, kind] of rows) {
    const bar = element("dd", "");
    bar.className = `amount ${kind}`;
    bar.append(element("i", ""));
    bar.firstElementChild.style.inlineSize = `${((100 * value) / most).toFixed(1)}%`;
    list.append(element("dt", name), bar, element("dd", figure(value, unit)));
  }
  return list;
}

const figure = (loss, unit) => `${loss.toPrecision(3)}${unit ? ` ${unit}` : ""}`;

function element(name, text) {
  const made = document.createElement(name);
  made.textContent = text;
  return made;
}
