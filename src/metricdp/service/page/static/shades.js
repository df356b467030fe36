// The map of protection radii, under the roads: the deeper the colour, the farther protection reaches.

import { length } from "./words.js";

const [FAINT, DEEP] = [0.04, 0.42]; // opacity of the least and of the largest radius

export class Shades {
  constructor({ canvas, legend, toggle, least, most }, redraw) {
    Object.assign(this, { canvas, legend, toggle, least, most });
    this.mechanism = null;
    this.on = true;
    toggle.addEventListener("click", () => {
      this.on = !this.on;
      toggle.setAttribute("aria-pressed", this.on);
      redraw();
    });
  }

  /** Turn to a mechanism; one with a single ε has no such layer, nor have boxes without two axes. */
  show(mechanism) {
    const there = Boolean(mechanism.cells) && mechanism.n_axes === 2;
    this.mechanism = there ? mechanism : null;
    this.legend.hidden = !there;
    if (!there) return;
    const { radius_least: near, radius_most: far } = mechanism.epsilon_map;
    this.least.textContent = length(near, mechanism.unit);
    this.most.textContent = length(far, mechanism.unit);
  }

  draw(camera) {
    this.canvas.hidden = !this.mechanism || !this.on;
    if (this.canvas.hidden) return;
    const ratio = window.devicePixelRatio || 1;
    const [width, height] = [Math.round(camera.width * ratio), Math.round(camera.height * ratio)];
    if (this.canvas.width !== width || this.canvas.height !== height) Object.assign(this.canvas, { width, height });
    const context = this.canvas.getContext("2d");
    context.clearRect(0, 0, width, height);
    context.fillStyle = getComputedStyle(this.canvas).color;
    const { epsilon_map: range, plane_epsilon: most, epsilon } = this.mechanism;
    const least = (range.least * most) / epsilon;
    for (const { low, high, epsilon: local } of this.mechanism.cells) {
      // Whole pixels, so that neighbours neither overlap nor leave a gap.
      const [left, bottom] = camera.toScreen(low).map((value) => Math.round(value * ratio));
      const [right, top] = camera.toScreen(high).map((value) => Math.round(value * ratio));
      context.globalAlpha = depth(local, least, most);
      context.fillRect(left, top, right - left, bottom - top);
    }
  }
}

/** Opacity of an ε: equal factors look equally far apart. */
export function depth(epsilon, least, most) {
  const share = Math.log(most / epsilon) / Math.log(most / least);
  return FAINT + (DEEP - FAINT) * Math.min(Math.max(share, 0), 1);
}
