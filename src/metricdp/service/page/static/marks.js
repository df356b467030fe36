// Everything on the map that is not ground: the box, the two radii, the outputs as lights, the draws.

import { ranked, unitBall } from "./measure.js";
import { shortened } from "./places.js";

const SVG = "http://www.w3.org/2000/svg";
const SMALLEST = 3.5; // pixels: what is hardly ever reported still shows where it is
const MANY = 60; // outputs; beyond this only the larger lights carry their label
const LONGEST = 20; // letters of a label
const BOLD = 1.2; // how much wider a label is inside a light, where it is bold and larger
const LINE = 14; // pixels from a label to one below it

export class Marks {
  constructor(svg, hover) {
    this.svg = svg;
    this.hover = hover;
    this.shapes = {};
    this.beliefs = add(svg, "g", { class: "beliefs" });
    for (const name of ["box", "protect"]) this.shapes[name] = add(svg, "path", { class: name });
    this.lights = add(svg, "g", { class: "lights" });
    for (const name of ["edge", "accuracy"]) this.shapes[name] = add(svg, "path", { class: name });
    this.shapes.link = add(svg, "line", { class: "link" });
    this.labels = add(svg, "g", { class: "labels" });
    this.shapes.ray = add(svg, "line", { class: "ray" });
    this.shapes.report = add(svg, "circle", { class: "report", r: 7 });
    this.items = [];
    this.flight = 0;
  }

  /** Make one light per output. */
  outputs(labels) {
    this.lights.replaceChildren();
    this.labels.replaceChildren();
    this.order = "";
    this.items = labels.map((text, id) => {
      const group = add(this.lights, "g", { class: "light" });
      const item = {
        group,
        disc: add(group, "circle", { class: "disc" }),
        ring: add(group, "circle", { class: "ring" }),
        label: add(this.labels, "text", { class: "label" }),
      };
      item.label.textContent = shortened(text, LONGEST);
      group.addEventListener("pointerenter", (event) => event.pointerType === "mouse" && this.hover(id));
      group.addEventListener("pointerleave", () => this.hover(null));
      return item;
    });
    // After all are there, so that the browser lays them out once.
    for (const item of this.items) item.width = item.label.getComputedTextLength();
  }

  /** Place everything. `scene` is what there is to show, in the plane's coordinates; discs and rings have areas in
   *  proportion to `probabilities` and `rings`. */
  draw(camera, scene) {
    const { box, here, there, outputs, probabilities, radii, p, rings, hot, drawn, belief } = scene;
    this.believe(camera, belief);
    const large = Math.min(64, Math.max(28, Math.min(camera.width, camera.height) * 0.085));
    const lines = (points) => `M${points.map((point) => camera.toScreen(point).map((v) => v.toFixed(2)).join(" ")).join("L")}Z`;
    const [[west, south], [east, north]] = box;
    set(this.shapes.box, { d: lines([[west, south], [east, south], [east, north], [west, north]]) });
    const around = (radius, shape) => lines(shape.map(([x, y]) => [here[0] + radius * x, here[1] + radius * y]));
    const protection = { d: around(radii.protection, unitBall(p)) };
    show(this.shapes.protect, protection);
    show(this.shapes.edge, protection);
    show(this.shapes.accuracy, radii.accuracy !== null && { d: around(radii.accuracy, unitBall(2)) });
    show(this.shapes.link, there && ends(camera.toScreen(here), camera.toScreen(there ?? here)));
    const spots = outputs.map((place, id) => {
      const { group, disc, ring } = this.items[id];
      const [x, y] = camera.toScreen(place);
      const probability = probabilities?.[id] ?? 0;
      const size = (share) => Math.max(SMALLEST, large * Math.sqrt(share));
      const radius = size(probability);
      const outer = Math.max(radius, rings?.[id] > 0 ? size(rings[id]) : 0);
      set(group, { transform: `translate(${x.toFixed(2)} ${y.toFixed(2)})` });
      group.style.setProperty("--lit", Math.sqrt(probability).toFixed(4));
      group.classList.toggle("hot", id === hot);
      group.classList.toggle("last", id === drawn);
      set(disc, { r: radius.toFixed(2) });
      show(ring, rings?.[id] > 0 && { r: size(rings[id]).toFixed(2) });
      return { x, y, radius, outer };
    });
    const order = probabilities ? ranked(probabilities) : [...spots.keys()];
    // What is looked at may be an output of the mechanisms that were shown before.
    const first = spots[hot] ? hot : order[0];
    this.name(spots, [first, ...order.filter((id) => id !== first)], camera);
    if (probabilities) this.stack(order);
    this.project = (id) => [camera.toScreen(here), camera.toScreen(outputs[id])];
  }

  /**
   * Label lights in an order of importance: inside, at the right or at the left, where the map has room and no earlier
   * label is in the way. The first one gets its label in any case.
   */
  name(spots, order, { width: edge, height }) {
    const taken = [];
    const meet = (one, other) =>
      one.left < other.left + other.width && other.left < one.left + one.width && Math.abs(one.y - other.y) < LINE;
    const within = ({ left, width, y }) => left >= 0 && left + width <= edge && y >= LINE / 2 && y <= height - LINE / 2;
    const free = (box) => within(box) && !taken.some((other) => meet(box, other));
    for (const id of order) {
      const { label, width } = this.items[id];
      const { x, y, radius, outer } = spots[id];
      const bold = BOLD * width;
      const [right, left] = [x + outer + 3, x - outer - 3];
      const boxes = [
        { side: "right", at: right, left: right, y, width },
        { side: "left", at: left, left: left - width, y, width },
      ];
      if (2 * radius >= Math.max(20, bold)) boxes.unshift({ side: "inside", at: x, left: x - bold / 2, y, width: bold });
      const told = boxes.length > 2 || spots.length <= MANY || id === order[0];
      const box = told ? (boxes.find(free) ?? (id === order[0] ? boxes[0] : null)) : null;
      if (box) taken.push(box);
      for (const side of ["inside", "left"]) label.classList.toggle(side, box?.side === side);
      show(label, box && { x: box.at.toFixed(2), y: (y + (box.side === "inside" ? 4 : 3.5)).toFixed(2) });
    }
  }

  /** Shade the cells of a lattice by how strongly each is believed in. */
  believe(camera, belief) {
    const wanted = belief?.places.length ?? 0;
    while (this.beliefs.childElementCount > wanted) this.beliefs.lastElementChild.remove();
    while (this.beliefs.childElementCount < wanted) add(this.beliefs, "rect", {});
    if (!belief) return;
    const { places, half, shades } = belief;
    places.forEach(([x, y], cell) => {
      const [left, top] = camera.toScreen([x - half[0], y + half[1]]);
      const [right, bottom] = camera.toScreen([x + half[0], y - half[1]]);
      const rect = this.beliefs.children[cell];
      set(rect, { x: left.toFixed(2), y: top.toFixed(2), width: (right - left).toFixed(2), height: (bottom - top).toFixed(2) });
      rect.style.opacity = (0.75 * shades[cell]).toFixed(3);
    });
  }

  /** Small lights lie on large ones, or they could not be seen. */
  stack(order) {
    if (this.order === order.join()) return;
    this.order = order.join();
    this.lights.append(...order.map((id) => this.items[id].group));
  }

  /** Let a report travel from the place to the output that was drawn. */
  fly(id, calm) {
    cancelAnimationFrame(this.flight);
    if (!this.items[id]) return; // more axes than the map can show
    const { ray, report } = this.shapes;
    const land = () => {
      show(report, null);
      const { group } = this.items[id];
      group.classList.remove("landed");
      group.getBoundingClientRect(); // restarts the animation
      group.classList.add("landed");
    };
    if (calm) {
      land();
      return;
    }
    const started = performance.now();
    const frame = (now) => {
      const time = Math.min((now - started) / 650, 1);
      const eased = 1 - (1 - time) ** 3;
      const [from, to] = this.project(id);
      const at = [from[0] + (to[0] - from[0]) * eased, from[1] + (to[1] - from[1]) * eased];
      show(report, { cx: at[0], cy: at[1] });
      show(ray, { ...ends(from, at), opacity: 1 - time ** 4 });
      if (time < 1) this.flight = requestAnimationFrame(frame);
      else {
        show(ray, null);
        land();
      }
    };
    this.flight = requestAnimationFrame(frame);
  }

  /** Forget a report on its way and the last one that arrived. */
  rest() {
    cancelAnimationFrame(this.flight);
    show(this.shapes.ray, null);
    show(this.shapes.report, null);
    this.items.forEach(({ group }) => group.classList.remove("landed"));
  }
}

const ends = ([x1, y1], [x2, y2]) => ({ x1, y1, x2, y2 });

function add(parent, name, attributes) {
  const element = document.createElementNS(SVG, name);
  set(element, attributes);
  parent.append(element);
  return element;
}

function set(element, attributes) {
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
}

function show(element, attributes) {
  element.classList.toggle("off", !attributes);
  if (attributes) set(element, attributes);
}
