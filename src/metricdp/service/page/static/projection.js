// Longitude and latitude to kilometres on a mechanism's plane, and back: the library's equirectangular projection.

const KM_PER_DEGREE = (6371 * Math.PI) / 180;

const kmPerDegree = ({ lat_deg }) => [KM_PER_DEGREE * Math.cos((lat_deg * Math.PI) / 180), KM_PER_DEGREE];

export function toPlane(projection, lon, lat) {
  const [east, north] = kmPerDegree(projection);
  return [(lon - projection.lon_deg) * east, (lat - projection.lat_deg) * north];
}

export function toLonLat(projection, [x, y]) {
  const [east, north] = kmPerDegree(projection);
  return [x / east + projection.lon_deg, y / north + projection.lat_deg];
}

/** Scale and shift that take one projection's kilometres to another's. */
export function between(from, to) {
  const [a, b] = [kmPerDegree(from), kmPerDegree(to)];
  const shift = toPlane(to, from.lon_deg, from.lat_deg);
  return { scale: [b[0] / a[0], 1], shift };
}

/** Edges of web-mercator tile (zoom, column, row) in degrees: west, south, east, north. */
export function tileEdges(zoom, column, row) {
  const tiles = 2 ** zoom;
  const lat = (index) => (Math.atan(Math.sinh(Math.PI * (1 - (2 * index) / tiles))) * 180) / Math.PI;
  const lon = (index) => (360 * index) / tiles - 180;
  return [lon(column), lat(row + 1), lon(column + 1), lat(row)];
}

/** Column and row of web-mercator tiles, with fractions. */
export function tileAt(zoom, lon, lat) {
  const tiles = 2 ** zoom;
  const phi = (Math.max(-85, Math.min(85, lat)) * Math.PI) / 180;
  return [(tiles * (lon + 180)) / 360, (tiles * (1 - Math.asinh(Math.tan(phi)) / Math.PI)) / 2];
}
