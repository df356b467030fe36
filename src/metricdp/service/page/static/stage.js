// What lies on the map beside its marks: the land, the pins, the scale, a tip.

import { distance } from "./measure.js";
import { capital } from "./places.js";
import { toLonLat } from "./projection.js";
import { direction, exactPercent, length } from "./words.js";

const $ = (id) => document.getElementById(id);

/** One axis is shown on a line in the middle of the map. */
export const onPlane = (point) => (point.length === 1 ? [point[0], 0] : point);

export function planeBox({ bounds: [low, high], n_axes: nAxes }) {
  if (nAxes > 2) return [[-1, -1], [1, 1]];
  return [onPlane(low), onPlane(high)];
}

export function drawLand(camera, [low, high]) {
  const [left, bottom] = camera.toScreen(low);
  const [right, top] = camera.toScreen(high);
  Object.assign($("land").style, {
    translate: `${left}px ${top}px`,
    inlineSize: `${right - left}px`,
    blockSize: `${bottom - top}px`,
  });
}

export function drawPin(camera, pin, point, mechanism, name) {
  const [left, top] = camera.toScreen(onPlane(point));
  pin.style.translate = `${left}px ${top}px`;
  point.forEach((value, axis) => {
    pin.dataset["xy"[axis]] = value;
  });
  pin.setAttribute("aria-label", `${name}: ${where(point, mechanism)}`);
}

function where(point, { projection, unit }) {
  if (!projection) return point.map((value) => Number(value.toPrecision(4))).join(", ");
  const [lon, lat] = toLonLat(projection, point);
  const middle = distance(point, [0, 0]);
  const from = middle < 0.001 ? "the centre" : `${length(middle, unit)} ${direction(point)} of the centre`;
  return `${from}, latitude ${lat.toFixed(5)}, longitude ${lon.toFixed(5)}`;
}

export function drawScale(camera, unit) {
  const most = 120 / camera.scale;
  const power = 10 ** Math.floor(Math.log10(most));
  const round = [5, 2, 1].find((digit) => digit * power <= most) * power;
  const [label, bar] = $("scale").children;
  label.textContent = unit === "km" && round >= 1 ? `${round} km` : length(round, unit);
  bar.style.inlineSize = `${round * camera.scale}px`;
}

/** Exact figures of the output that somebody looks at. */
export function drawTip(camera, { mechanism, hot, probabilities, probabilitiesThere, versus, distances, outputs, unit }) {
  const tip = $("tip");
  tip.hidden = hot === null || !probabilities;
  if (tip.hidden) return;
  const figures = versus
    ? `${exactPercent(probabilities[hot])} from A, ${exactPercent(probabilitiesThere[hot])} from B`
    : `${exactPercent(probabilities[hot])}, ${length(distances[hot], unit)} from you`;
  tip.textContent = `${capital(mechanism.called(hot))}: ${figures}`;
  const [left, top] = camera.toScreen(onPlane(outputs[hot]));
  const half = tip.offsetWidth / 2 + 8;
  const above = top > 70;
  const x = Math.min(Math.max(left, half), camera.width - half);
  const y = Math.min(Math.max(top + (above ? -24 : 24), 8), camera.height - 8);
  tip.classList.toggle("below", !above);
  tip.style.translate = `${x}px ${y}px`;
}
