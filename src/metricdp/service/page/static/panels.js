// What the map shows, in words: the two radii, the summary, the comparison of two places.

import { isLocal } from "./api.js";
import { belief } from "./measure.js";
import { capital } from "./places.js";
import { budgetOf, chance, count, length, percent, shapeName, times } from "./words.js";

const $ = (id) => document.getElementById(id);

export function drawRadii({ mechanism, radii }) {
  const { p, n_axes: nAxes, unit, epsilon_map: range } = mechanism;
  const shape = shapeName(p, nAxes);
  $("protection").textContent = length(radii.protection, unit);
  $("protection").dataset.value = radii.protection;
  $("protect-swatch").dataset.shape = shape;
  $("protection-words").textContent =
    `No report is more than e ≈ 2.7 times likelier from you than from any place in this ${shape}, or the other way ` +
    `round. ${range ? varying(range, unit) : `(1/ε, at ${budgetOf(mechanism)})`}`;
  const known = radii.accuracy !== null;
  $("accuracy").textContent = known ? length(radii.accuracy, unit) : "";
  if (known) $("accuracy").dataset.value = radii.accuracy;
  $("accuracy-words").textContent = "95 % of the reports from here lie this near to you.";
}

function varying(range, unit) {
  const [near, far] = [range.radius_least, range.radius_most].map((radius) => length(radius, unit));
  return `It is that of the pin: ε varies over this map, and the radius with it, from ${near} to ${far}.`;
}

/** One place in words, for everybody and for screen readers. */
export function summary({ mechanism, probabilities, order, distances, radii }) {
  const { unit, n_outputs: nOutputs, n_axes: nAxes } = mechanism;
  const [first, second] = order;
  const words = [
    `You are at the ${nAxes > 2 ? "centre" : "pin"}. ${isLocal() ? "This device" : "The service"} never says so: it reports one of ${count(nOutputs)} places, drawn by chance.`,
    `From here, ${mechanism.called(first)} comes up most often (${percent(probabilities[first])}, ${length(distances[first], unit)} away)`,
  ];
  if (second !== undefined) words.push(`, then ${mechanism.called(second)} (${percent(probabilities[second])}).`);
  else words.push(".");
  words.push(` 95 % of reports lie within ${length(radii.accuracy, unit)}.`);
  return `${words[0]} ${words.slice(1).join("")}`;
}

export function drawVersus({ mechanism, versus, probabilities, probabilitiesThere, hot }) {
  const { ratios, worst, apart, bound, used, mostBelief } = versus;
  const { unit } = mechanism;
  const box = $("versus");
  Object.assign(box.dataset, { apart, bound, ratio: ratios[worst], output: worst, most: mostBelief });
  $("bound-exponent").textContent = mechanism.cells ? "∫ε ds" : "ε·d";
  $("worst-ratio").textContent = `${times(ratios[worst])} ×`;
  $("ratio-bound").textContent = `${times(bound)} ×`;
  $("bound-bar").firstElementChild.style.inlineSize = `${Math.min(100, 100 * used).toFixed(1)}%`;
  $("bound-bar").setAttribute("aria-label", `${percent(used)} of what is allowed, on a logarithmic scale`);
  const shown = hot ?? worst;
  const here = belief(probabilities[shown], probabilitiesThere[shown]);
  if (here === null) {
    $("belief").textContent = `${capital(mechanism.called(shown))} is reported from neither.`;
    return;
  }
  const [letter, sure] = here >= 0.5 ? ["A", here] : ["B", 1 - here];
  Object.assign(box.dataset, { belief: here, beliefOutput: shown });
  const which = `${mechanism.called(shown)}${hot === null ? ", the most telling one" : ""}`;
  $("belief").textContent =
    `Someone who thought A and B equally likely and now sees ${which}, is ${chance(sure)} sure that you are at ` +
    `${letter}. No report can make them more than ${chance(mostBelief)} sure.`;
  $("belief").title = `${length(apart, unit)} apart at ${budgetOf(mechanism)}`;
}

/** Two places in words. */
export function versusSummary({ mechanism, versus }) {
  const { unit } = mechanism;
  const rule = mechanism.cells
    ? `On the straight way between them ε adds up to ${times(versus.exponent)}, so no report may be more than `
    : `At ${budgetOf(mechanism)} no report may be more than `;
  return (
    `A and B are ${length(versus.apart, unit)} apart. ${rule}` +
    `${times(versus.bound)} times likelier from one than from the other. On the map, discs are the chances from A, rings ` +
    `those from B.`
  );
}
