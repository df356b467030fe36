// Which part of the plane is on the screen.

const DEEPEST = 400; // times as large as the whole box on the screen

export class Camera {
  constructor() {
    this.width = this.height = 1;
    this.centre = [0, 0];
    this.scale = 1; // pixels per unit of the plane
    this.box = [[-1, -1], [1, 1]];
    this.fitted = true;
  }

  resize(width, height) {
    this.width = Math.max(width, 1);
    this.height = Math.max(height, 1);
    if (this.fitted) this.fit();
  }

  /** Look at the whole of a box given by two opposite corners. */
  fit(box = this.box) {
    this.box = box;
    const [[west, south], [east, north]] = box;
    this.centre = [(west + east) / 2, (south + north) / 2];
    this.scale = this.fitScale();
    this.fitted = true;
  }

  fitScale() {
    const [[west, south], [east, north]] = this.box;
    // Room for discs at the edge and for the scale below.
    const margin = this.width < 500 ? 36 : 44;
    const across = (this.width - 2 * margin) / Math.max(east - west, 1e-9);
    const up = (this.height - 2 * margin) / Math.max(north - south, 1e-9);
    return Math.max(Math.min(across, up), 1e-9);
  }

  toScreen([x, y]) {
    return [(x - this.centre[0]) * this.scale + this.width / 2, this.height / 2 - (y - this.centre[1]) * this.scale];
  }

  toPlane([left, top]) {
    return [(left - this.width / 2) / this.scale + this.centre[0], (this.height / 2 - top) / this.scale + this.centre[1]];
  }

  pan(dx, dy) {
    this.fitted = false;
    this.lookAt([this.centre[0] - dx / this.scale, this.centre[1] + dy / this.scale]);
  }

  /** Zoom so that what lies under `anchor` stays there. */
  zoom(factor, anchor = [this.width / 2, this.height / 2]) {
    const fit = this.fitScale();
    const before = this.toPlane(anchor);
    this.scale = Math.min(Math.max(this.scale * factor, fit / 2), fit * DEEPEST);
    this.fitted = false;
    const after = this.toPlane(anchor);
    this.lookAt([this.centre[0] + before[0] - after[0], this.centre[1] + before[1] - after[1]]);
  }

  lookAt([x, y]) {
    const [[west, south], [east, north]] = this.box;
    this.centre = [Math.min(Math.max(x, west), east), Math.min(Math.max(y, south), north)];
  }

  /** Pan as little as needed to have a point on the screen. */
  reveal(point) {
    const [left, top] = this.toScreen(point);
    const margin = 40;
    const dx = Math.max(margin - left, 0) - Math.max(left - this.width + margin, 0);
    const dy = Math.max(margin - top, 0) - Math.max(top - this.height + margin, 0);
    if (dx || dy) this.pan(dx, dy);
  }
}
