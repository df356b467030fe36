// A map of the world on which a rectangle can be drawn. It is drawn from the extension's own outlines: tiles from a
// server would tell it which region is looked at.

import { LAND } from "./world.js";

const WIDEST = 3600; // tenths of a degree
const NARROWEST = 12;

export class WorldMap {
  /** `picked` is called with the region while it is drawn. */
  constructor(svg, land, box, picked) {
    Object.assign(this, { svg, box, picked });
    land.setAttribute("d", LAND);
    this.view = { x: -1800, y: -900, width: WIDEST };
    let start = null;
    svg.addEventListener("pointerdown", (event) => {
      svg.setPointerCapture(event.pointerId);
      start = this.at(event);
    });
    svg.addEventListener("pointermove", (event) => {
      if (start) this.drawn(start, this.at(event));
    });
    svg.addEventListener("pointerup", () => {
      start = null;
    });
    svg.addEventListener("wheel", (event) => {
      event.preventDefault();
      this.zoom(event.deltaY > 0 ? 1.25 : 0.8, this.at(event));
    }, { passive: false });
  }

  /** Tenths of a degree east and south. */
  at({ clientX, clientY }) {
    const frame = this.svg.getBoundingClientRect();
    const { x, y, width } = this.view;
    return [x + ((clientX - frame.left) / frame.width) * width, y + ((clientY - frame.top) / frame.height) * (width / 2)];
  }

  drawn([x, y], [otherX, otherY]) {
    const degrees = (value, most) => Math.min(Math.max(value / 10, -most), most);
    const region = {
      west: degrees(Math.min(x, otherX), 180),
      east: degrees(Math.max(x, otherX), 180),
      south: degrees(-Math.max(y, otherY), 89),
      north: degrees(-Math.min(y, otherY), 89),
    };
    this.show(region);
    if (region.west < region.east && region.south < region.north) this.picked(region);
  }

  show({ west, south, east, north }) {
    const isBox = [west, south, east, north].every(Number.isFinite) && south < north;
    this.box.toggleAttribute("hidden", !isBox);
    if (!isBox) return;
    const wide = east >= west ? east - west : east - west + 360;
    const shape = { x: 10 * west, y: -10 * north, width: 10 * wide, height: 10 * (north - south) };
    for (const [name, value] of Object.entries(shape)) this.box.setAttribute(name, value);
  }

  /** Zoom about a point, without one about the rectangle or the middle. */
  zoom(factor, about = this.middle()) {
    const { x, y, width } = this.view;
    const wide = Math.min(Math.max(width * factor, NARROWEST), WIDEST);
    const real = wide / width;
    const clamp = (value, least, most) => Math.min(Math.max(value, least), most);
    this.view = {
      x: clamp(about[0] - (about[0] - x) * real, -1800, 1800 - wide),
      y: clamp(about[1] - (about[1] - y) * real, -900, 900 - wide / 2),
      width: wide,
    };
    this.svg.setAttribute("viewBox", `${this.view.x} ${this.view.y} ${wide} ${wide / 2}`);
  }

  middle() {
    const of = (name) => Number(this.box.getAttribute(name));
    if (!this.box.hasAttribute("hidden")) return [of("x") + of("width") / 2, of("y") + of("height") / 2];
    return [this.view.x + this.view.width / 2, this.view.y + this.view.width / 4];
  }
}
