// The city's roads on a canvas. They are drawn once onto a larger sheet, which then moves with the map.

import { between } from "./projection.js";

const MARGIN = 200; // pixels of the sheet beyond each edge of the map
const BINS = 24; // along each axis; what is off the sheet is skipped bin by bin
const ROAD_KM = 0.009; // how wide a road looks once one is close enough
const SLOW = 30; // milliseconds: a sheet that takes longer waits for the end of a gesture
const SETTLED = 140;

export class Roads {
  constructor(canvas, redraw) {
    this.canvas = canvas;
    this.redraw = redraw;
    this.bins = [];
    this.sheet = document.createElement("canvas");
    this.drawn = null; // what the sheet shows
    this.cost = 0;
    this.timer = 0;
  }

  /** Take the answer of /page/roads, for maps in the plane of `projection`. */
  load(answer, projection) {
    this.bins = answer.projection && projection ? binned(answer, between(answer.projection, projection)) : [];
    this.forget();
  }

  /** Colours or roads have changed. */
  forget() {
    this.drawn = null;
  }

  draw(camera) {
    const ratio = window.devicePixelRatio || 1;
    const [width, height] = [Math.round(camera.width * ratio), Math.round(camera.height * ratio)];
    if (this.canvas.width !== width || this.canvas.height !== height) {
      this.canvas.width = width;
      this.canvas.height = height;
    }
    const context = this.canvas.getContext("2d");
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.clearRect(0, 0, width, height);
    if (this.bins.length === 0) return;
    if (!this.covers(camera, ratio)) this.renew(camera, ratio);
    const { scale, centre, pixels } = this.drawn;
    // A sheet of another scale is stretched until the new one is ready.
    const stretch = (camera.scale / scale) * (ratio / pixels);
    const [left, top] = camera.toScreen(centre);
    const [wide, high] = [this.sheet.width * stretch, this.sheet.height * stretch];
    const x = left * ratio - wide / 2;
    const y = top * ratio - high / 2;
    if (stretch === 1) context.drawImage(this.sheet, Math.round(x), Math.round(y));
    else context.drawImage(this.sheet, x, y, wide, high);
  }

  covers(camera, ratio) {
    if (!this.drawn || this.drawn.pixels !== ratio || this.drawn.width < camera.width || this.drawn.height < camera.height) {
      return false;
    }
    const { scale, centre, width, height } = this.drawn;
    const fits =
      scale === camera.scale &&
      Math.abs(centre[0] - camera.centre[0]) * scale <= (width - camera.width) / 2 &&
      Math.abs(centre[1] - camera.centre[1]) * scale <= (height - camera.height) / 2;
    if (fits || this.cost < SLOW) return fits;
    // Too slow for every frame: stretch what there is, and draw anew once the hand rests.
    clearTimeout(this.timer);
    this.timer = setTimeout(() => {
      this.forget();
      this.redraw();
    }, SETTLED);
    return true;
  }

  renew(camera, ratio) {
    const started = performance.now();
    const [width, height] = [camera.width + 2 * MARGIN, camera.height + 2 * MARGIN];
    this.sheet.width = Math.round(width * ratio);
    this.sheet.height = Math.round(height * ratio);
    const context = this.sheet.getContext("2d");
    const zoom = camera.scale * ratio;
    const [x, y] = camera.centre;
    context.setTransform(zoom, 0, 0, -zoom, this.sheet.width / 2 - x * zoom, this.sheet.height / 2 + y * zoom);
    const reach = [width / 2 / camera.scale, height / 2 / camera.scale];
    const seen = this.bins.filter(
      ({ box: [west, south, east, north] }) =>
        east >= x - reach[0] && west <= x + reach[0] && north >= y - reach[1] && south <= y + reach[1],
    );
    const style = getComputedStyle(this.canvas);
    const pixels = Math.min(ROAD_KM * camera.scale, 14);
    context.lineCap = context.lineJoin = pixels > 1.5 ? "round" : "butt";
    const stroke = (colour, wide) => {
      context.strokeStyle = colour;
      context.lineWidth = wide / camera.scale;
      for (const { path } of seen) context.stroke(path);
    };
    stroke(pixels > 1.5 ? style.color : style.borderTopColor, Math.max(pixels, 0.8));
    if (pixels > 3) stroke(style.outlineColor, pixels - 1.6);
    this.drawn = { scale: camera.scale, centre: [...camera.centre], width, height, pixels: ratio };
    this.cost = performance.now() - started;
  }
}

/** Sort roads into bins, each with one path in kilometres and the box it covers. */
function binned({ nodes, edges, unit_m: unit }, { scale, shift }) {
  const km = unit / 1000;
  const xs = new Float64Array(nodes.length / 2);
  const ys = new Float64Array(nodes.length / 2);
  const all = [Infinity, Infinity, -Infinity, -Infinity];
  for (let i = 0; i < xs.length; i++) {
    xs[i] = nodes[2 * i] * km * scale[0] + shift[0];
    ys[i] = nodes[2 * i + 1] * km * scale[1] + shift[1];
    widen(all, xs[i], ys[i]);
  }
  const bins = new Map();
  const place = (value, low, high) => Math.min(BINS - 1, Math.floor((BINS * (value - low)) / Math.max(high - low, 1e-12)));
  for (let i = 0; i < edges.length; i += 2) {
    const [u, v] = [edges[i], edges[i + 1]];
    const name = BINS * place((xs[u] + xs[v]) / 2, all[0], all[2]) + place((ys[u] + ys[v]) / 2, all[1], all[3]);
    let bin = bins.get(name);
    if (!bin) bins.set(name, (bin = { path: new Path2D(), box: [Infinity, Infinity, -Infinity, -Infinity] }));
    bin.path.moveTo(xs[u], ys[u]);
    bin.path.lineTo(xs[v], ys[v]);
    widen(bin.box, xs[u], ys[u]);
    widen(bin.box, xs[v], ys[v]);
  }
  return [...bins.values()];
}

function widen(box, x, y) {
  box[0] = Math.min(box[0], x);
  box[1] = Math.min(box[1], y);
  box[2] = Math.max(box[2], x);
  box[3] = Math.max(box[3], y);
}
