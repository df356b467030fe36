// A background of web-mercator tiles, only if the service was started with one. It tells the tiles' server which part
// of the map is looked at, never where a pin is.

import { tileAt, tileEdges, toLonLat, toPlane } from "./projection.js";

const SIDE = 256; // pixels
const DEEPEST = 19;
const MOST_AT_ONCE = 80;
const MOST_KEPT = 400;

export class Tiles {
  constructor(canvas, template, redraw) {
    this.canvas = canvas;
    this.template = template;
    this.host = new URL(template.replace("{s}", "a")).host;
    this.redraw = redraw;
    this.kept = new Map();
    canvas.hidden = false;
  }

  draw(camera, projection) {
    const ratio = window.devicePixelRatio || 1;
    this.canvas.width = Math.round(camera.width * ratio);
    this.canvas.height = Math.round(camera.height * ratio);
    if (!projection) return;
    const context = this.canvas.getContext("2d");
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    for (const [zoom, column, row] of inSight(camera, projection)) {
      const image = this.tile(zoom, column, row);
      if (!image.complete || image.naturalWidth === 0) continue;
      const [west, south, east, north] = tileEdges(zoom, column, row);
      // Within one tile the two projections differ by less than a pixel in a city.
      const [left, top] = camera.toScreen(toPlane(projection, west, north));
      const [right, bottom] = camera.toScreen(toPlane(projection, east, south));
      // Half a pixel more, so that no seams show.
      context.drawImage(image, left, top, right - left + 0.5, bottom - top + 0.5);
    }
  }

  tile(zoom, column, row) {
    const across = 2 ** zoom;
    const wrapped = ((column % across) + across) % across;
    const address = this.template
      .replace("{s}", "abc"[(wrapped + row) % 3])
      .replace("{z}", zoom)
      .replace("{x}", wrapped)
      .replace("{y}", row);
    let image = this.kept.get(address);
    if (image) return image;
    image = new Image();
    image.addEventListener("load", () => this.redraw());
    image.src = address;
    this.kept.set(address, image);
    if (this.kept.size > MOST_KEPT) this.kept.delete(this.kept.keys().next().value);
    return image;
  }
}

function inSight(camera, projection) {
  const [west, north] = toLonLat(projection, camera.toPlane([0, 0]));
  const [east, south] = toLonLat(projection, camera.toPlane([camera.width, camera.height]));
  const pixelsPerDegree = camera.width / (east - west);
  const zoom = Math.max(0, Math.min(DEEPEST, Math.round(Math.log2((pixelsPerDegree * 360) / SIDE))));
  const [left, top] = tileAt(zoom, west, north).map(Math.floor);
  const [right, bottom] = tileAt(zoom, east, south).map(Math.floor);
  const found = [];
  for (let row = Math.max(top, 0); row <= Math.min(bottom, 2 ** zoom - 1); row++) {
    for (let column = left; column <= right; column++) found.push([zoom, column, row]);
  }
  return found.slice(0, MOST_AT_ONCE);
}
