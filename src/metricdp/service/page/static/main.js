// The page: what is chosen, what was answered, and who draws it.

import { Adversary } from "./adversary.js";
import { ServiceError, get, useDevice, useKey } from "./api.js";
import { Camera } from "./camera.js";
import { chances } from "./chances.js";
import { openDevice } from "./device.js";
import { Draws } from "./draws.js";
import { listen } from "./gestures.js";
import { latest } from "./latest.js";
import { Marks } from "./marks.js";
import { cellsOf, exponentBetween, protectionRadius } from "./elastic.js";
import { accuracyRadius, comparison, distance, ranked } from "./measure.js";
import { Methods, groupTitle, grouped } from "./methods.js";
import { drawOneOrMany } from "./one_or_many.js";
import { drawRadii, drawVersus, summary, versusSummary } from "./panels.js";
import { movable } from "./pins.js";
import { withPlaces } from "./places.js";
import { Reports } from "./reports.js";
import { Roads } from "./roads.js";
import { Shades } from "./shades.js";
import { drawLand, drawPin, drawScale, drawTip, onPlane, planeBox } from "./stage.js";
import { themeSwitch } from "./theme.js";
import { Tiles } from "./tiles.js";

const $ = (id) => document.getElementById(id);

const state = {
  config: null,
  groups: [],
  group: [],
  mechanism: null,
  here: null, // in the mechanism's own coordinates
  there: null,
  active: "here",
  comparing: false,
  answer: null, // the latest probabilities, with the places they belong to
  hot: null, // the output that somebody looks at
};

const camera = new Camera();
const roads = new Roads($("roads"), () => redraw());
const shades = new Shades(
  {
    canvas: $("shades"),
    legend: $("legend"),
    toggle: $("shades-toggle"),
    least: $("radius-least"),
    most: $("radius-most"),
  },
  () => redraw(),
);
const marks = new Marks($("marks"), (id) => look(id));
const reports = new Reports(
  { table: $("outputs"), head: $("outputs-head"), caption: $("outputs-caption"), rest: $("rest") },
  { hover: (id) => look(id) },
);
const methods = new Methods(
  {
    slider: $("epsilon"),
    value: $("epsilon-value"),
    ticks: $("ticks"),
    table: $("methods"),
    lossHead: $("loss-head"),
    proof: $("proof"),
  },
  { choose },
);
const draws = new Draws({ state, marks, failed, changed: () => answered(), stale: () => moved() });
const adversary = new Adversary({ state, changed: () => answered() });
let roadLines = null;
let tiles = null;

// ---- Starting -------------------------------------------------------------------------------------------------------

async function start() {
  themeSwitch($("theme"), () => {
    roads.forget();
    redraw();
  });
  if (document.documentElement.dataset.source === "device") useDevice(await openDevice());
  state.config = await get("page/config");
  const { city, tiles: template, keys, version } = state.config;
  document.querySelector(".logo").title = `metricdp ${version}`;
  if (city) $("where").textContent = city[0].toUpperCase() + city.slice(1);
  if (template) tiles = new Tiles($("tiles"), template, () => redraw());
  draws.configure(state.config);
  $("gate").hidden = !keys;
  if (keys) $("key").focus();
  else await open();
}

$("gate").addEventListener("submit", async (event) => {
  event.preventDefault();
  useKey($("key").value.trim());
  $("gate-error").textContent = "";
  try {
    await open();
    $("gate").hidden = true;
    $("here").focus({ preventScroll: true });
  } catch (error) {
    useKey("");
    $("gate-error").textContent = error.status === 401 ? "The service does not know this key." : wordsOf(error);
  }
});

/** Fetch the mechanisms and the roads, and show the first mechanism. */
async function open() {
  const { city } = state.config;
  const [mechanisms, lines] = await Promise.all([fetchMechanisms(), city && !roadLines ? get("page/roads") : roadLines]);
  roadLines = lines;
  take(mechanisms);
  enter(state.groups[0]);
}

async function fetchMechanisms() {
  const { mechanisms } = await get("v1/mechanisms");
  const details = [];
  // A few at a time: the answers are small, but there may be many.
  const queue = mechanisms.map((one, at) => [one, at]);
  const worker = async () => {
    for (let next = queue.shift(); next; next = queue.shift()) {
      details[next[1]] = await fetchMechanism(next[0].id);
    }
  };
  await Promise.all([worker(), worker(), worker(), worker()]);
  return details.map((one) => withPlaces({ ...one, p: one.p === "inf" ? Infinity : one.p }));
}

/** One mechanism, with the cells of its map where its ε varies over the box. */
async function fetchMechanism(id) {
  const address = `v1/mechanisms/${encodeURIComponent(id)}`;
  const detail = await get(address);
  if (!detail.epsilon_map) return detail;
  const map = detail.map ?? (await get(`${address}/epsilon-map`).catch(absent));
  // Without its cells the largest ε is what can be said of it: less, and still true.
  return map ? { ...detail, map, cells: cellsOf(map) } : { ...detail, epsilon_map: null };
}

/** Null where nobody has the answer, as for pages without a service; other faults are told. */
function absent(error) {
  if (error instanceof ServiceError && error.status !== 404) throw error;
  return null;
}

function take(mechanisms) {
  state.groups = grouped(mechanisms);
  $("group-choice").hidden = state.groups.length < 2;
  $("group").replaceChildren(...state.groups.map((group, at) => new Option(groupTitle(group), at)));
}

/** Turn to another problem: other outputs, another box. */
function enter(group) {
  const [first] = group;
  Object.assign(state, { group, there: null, answer: null, hot: null });
  $("group").value = state.groups.indexOf(group);
  state.here = first.bounds[0].map((low, axis) => (low + first.bounds[1][axis]) / 2);
  marks.outputs(first.n_axes <= 2 ? first.labels : []);
  const credits = [roadLines && first.projection && "© OpenStreetMap contributors", tiles && `Tiles from ${tiles.host}`];
  $("credit").textContent = credits.filter(Boolean).join(" · ");
  roads.load(roadLines ?? { projection: null }, first.projection);
  camera.fit(planeBox(first));
  compare(false);
  choose(first);
}

$("group").addEventListener("change", () => enter(state.groups[$("group").value]));

/** Turn to another mechanism of the same problem. */
function choose(mechanism) {
  state.mechanism = mechanism;
  draws.clear();
  methods.draw(state.group, mechanism);
  drawOneOrMany($("one-or-many"), state.group, mechanism);
  shades.show(mechanism);
  document.body.dataset.axes = mechanism.n_axes;
  $("no-map").hidden = mechanism.n_axes <= 2;
  $("no-map").textContent =
    `This mechanism has ${mechanism.n_axes} axes, and a map can show one or two. The figures are for the centre of its box.`;
  $("mode-two").disabled = mechanism.n_axes > 2;
  moved();
}

// ---- Asking ---------------------------------------------------------------------------------------------------------

/** A pin or the mechanism has changed: show what can be shown at once, and ask for the rest. */
function moved() {
  document.body.dataset.state = "busy";
  redraw();
  const { mechanism, here, there, comparing } = state;
  ask({ mechanism, places: comparing ? [here, there] : [here] });
}

const ask = latest(async ({ mechanism, places }) => {
  let answer;
  try {
    answer = await chances(mechanism, places);
  } catch (error) {
    failed(error, moved);
    return;
  }
  if (answer.sha256 !== mechanism.sha256) {
    await refresh(state.mechanism.id);
    return;
  }
  // Choices made while the question was under way are asked about next.
  if (mechanism !== state.mechanism || places.length !== (state.comparing ? 2 : 1)) return;
  state.answer = { mechanism, places, rows: answer.probabilities };
  tell("");
  answered();
}, 25);

/** The service has loaded another file for this mechanism. */
async function refresh(id) {
  try {
    take(await fetchMechanisms());
  } catch (error) {
    failed(error);
    return;
  }
  const group = state.groups.find((one) => one.some((mechanism) => mechanism.id === id)) ?? state.groups[0];
  const { here, there, comparing } = state;
  enter(group);
  if (here.length === state.here.length) {
    Object.assign(state, { here: clamp(here), there: there && clamp(there) });
    compare(comparing);
  }
  choose(group.find((mechanism) => mechanism.id === id) ?? group[0]);
}

let retry = 0;

function failed(error, again) {
  tell(wordsOf(error));
  document.body.dataset.state = "failed";
  if (error.status === 401) $("gate").hidden = false;
  clearTimeout(retry);
  // Too many questions: the service says when it takes more.
  if (again && error.status === 429) retry = setTimeout(again, 1000 * Math.max(error.retryAfter, 1));
}

function wordsOf(error) {
  if (error instanceof ServiceError) return error.message;
  console.error(error);
  return "Something went wrong on this page; the browser's console tells more.";
}

function tell(words) {
  $("alert").textContent = words;
  $("alert").hidden = !words;
}

// ---- Showing --------------------------------------------------------------------------------------------------------

/** All that is on show, from what is chosen and what was answered. */
function scene() {
  const { mechanism, comparing, answer, hot } = state;
  const outputs = mechanism.outputs_projected;
  const radii = { protection: protectionRadius(mechanism, state.here), accuracy: null };
  const tally = draws.tally();
  const shown = { mechanism, outputs, radii, hot, unit: mechanism.unit, probabilities: null, versus: null, ...tally };
  if (!answer) return shown;
  const [here, there] = answer.places;
  const [probabilities, probabilitiesThere] = answer.rows;
  radii.accuracy = accuracyRadius(here, outputs, probabilities);
  Object.assign(shown, { here, there: there ?? null, probabilities, probabilitiesThere });
  shown.distances = outputs.map((place) => distance(here, place));
  shown.order = ranked(probabilities);
  if (comparing && there) {
    const allowed = exponentBetween(mechanism, here, there);
    shown.versus = comparison(probabilities, probabilitiesThere, distance(here, there, mechanism.p), allowed);
    shown.order = ranked(shown.versus.ratios);
  }
  return shown;
}

let saying = 0;

function answered() {
  // What was answered for the last mechanism stays on the map until the next answer, but is not told of this one.
  if (state.answer?.mechanism !== state.mechanism) return;
  const shown = scene();
  adversary.take(shown);
  redraw();
  reports.draw(shown);
  drawRadii(shown);
  if (shown.versus) drawVersus(shown);
  const words = shown.versus ? versusSummary(shown) : summary(shown);
  // Said once the hand rests, or a screen reader would never finish.
  clearTimeout(saying);
  saying = setTimeout(() => ($("summary").textContent = words), $("summary").textContent ? 250 : 0);
  const settled = shown.here === state.here && (!state.comparing || shown.there === state.there);
  document.body.dataset.state = settled ? "ready" : "busy";
}

let frame = 0;

function redraw() {
  if (!frame) frame = requestAnimationFrame(paint);
}

function paint() {
  frame = 0;
  const { mechanism, here, there, comparing } = state;
  if (!mechanism || mechanism.n_axes > 2) return;
  const shown = scene();
  tiles?.draw(camera, mechanism.projection);
  shades.draw(camera);
  roads.draw(camera);
  marks.draw(camera, {
    ...shown,
    belief: draws.total ? adversary.cells() : null,
    box: planeBox(mechanism),
    here: onPlane(here),
    there: comparing ? onPlane(there) : null,
    outputs: shown.outputs.map(onPlane),
    p: mechanism.n_axes === 1 ? 2 : mechanism.p,
    // Beside the chances: the shares of what was drawn, or the chances from the other place.
    rings: shown.versus ? shown.probabilitiesThere : shown.shares,
  });
  drawLand(camera, planeBox(mechanism));
  drawPin(camera, $("here"), here, mechanism, comparing ? "A, here" : "You are here");
  if (comparing) drawPin(camera, $("there"), there, mechanism, "B, there");
  drawScale(camera, mechanism.unit);
  drawTip(camera, shown);
}

function look(id) {
  if (id === state.hot) return;
  state.hot = id;
  const shown = scene();
  reports.mark(shown.hot, shown.drawn);
  if (shown.versus) drawVersus(shown);
  redraw();
}

// ---- Places ---------------------------------------------------------------------------------------------------------

function clamp(point) {
  const [low, high] = (state.mechanism ?? state.group[0]).bounds;
  return low.map((least, axis) => Math.min(Math.max(point[axis], least), high[axis]));
}

function put(name, point) {
  state[name] = clamp(point);
  if (name === "here") draws.clear();
  moved();
}

function step(name, [x, y], large) {
  // A hundredth of what is on the map.
  const size = ((large ? 10 : 1) * Math.min(camera.width, camera.height)) / 100 / camera.scale;
  const [east, north] = onPlane(state[name]);
  put(name, [east + x * size, north + y * size]);
  camera.reveal(onPlane(state[name]));
}

function activate(name) {
  state.active = name;
  for (const one of ["here", "there"]) {
    $(`active-${one}`).setAttribute("aria-pressed", one === name);
    $(one).classList.toggle("active", one === name);
  }
}

function compare(on) {
  state.comparing = on;
  if (on && !state.there) state.there = across();
  $("mode-one").setAttribute("aria-pressed", !on);
  $("mode-two").setAttribute("aria-pressed", on);
  document.body.dataset.mode = on ? "two" : "one";
  $("there").hidden = !on;
  $("versus").hidden = !on;
  $("draws").hidden = on;
  $("reports-title").textContent = on ? "Can they tell A from B?" : "What will they see?";
  activate(on ? "there" : "here");
}

/** Where the second pin starts: one protection radius away from the first, where there is room. */
function across() {
  const { here, mechanism } = state;
  const away = protectionRadius(mechanism, here);
  const [low, high] = mechanism.bounds;
  const side = here[0] + away <= high[0] || here[0] - low[0] < high[0] - here[0] ? 1 : -1;
  return clamp(here.map((value, axis) => (axis === 0 ? value + side * away : value)));
}

for (const [button, on] of [["mode-one", false], ["mode-two", true]]) {
  $(button).addEventListener("click", () => {
    if (!state.mechanism) return;
    draws.clear();
    compare(on);
    moved();
  });
}

const zoom = (factor, anchor) => {
  camera.zoom(factor, anchor);
  redraw();
};
const whole = () => {
  camera.fit();
  redraw();
};

for (const name of ["here", "there"]) {
  $(`active-${name}`).addEventListener("click", () => activate(name));
  movable($(name), $("map"), {
    choose: () => activate(name),
    drag: (place) => put(name, camera.toPlane(place)),
    step: (way, large) => step(name, way, large),
    key: (key) => {
      const acts = { "+": () => zoom(1.5), "=": () => zoom(1.5), "-": () => zoom(1 / 1.5), 0: whole };
      acts[key]?.();
      return key in acts;
    },
  });
}

listen($("map"), {
  pan: (dx, dy) => {
    camera.pan(dx, dy);
    redraw();
  },
  zoom,
  click: (place) => {
    if (state.mechanism && state.mechanism.n_axes <= 2) put(state.active, camera.toPlane(place));
  },
});
$("zoom-in").addEventListener("click", () => zoom(1.6));
$("zoom-out").addEventListener("click", () => zoom(1 / 1.6));
$("zoom-fit").addEventListener("click", whole);

new ResizeObserver(() => {
  camera.resize($("map").clientWidth, $("map").clientHeight);
  redraw();
}).observe($("map"));

start().catch((error) => failed(error, open));
