// `node benchmarks/device.mjs FILE.mdp…`: how fast the JavaScript package loads, proves and draws. The same runs in a browser:
// serve the project's root and open benchmarks/device.html?FILE.mdp. Figures are the best of several runs.

const DRAWS = 50_000;
const RUNS = 5;

/** Return what one file takes: loading with its proof, the first draw after it, a proof alone, draws per second. */
export async function measure({ load }, bytes) {
  const best = { load_ms: Infinity, first_draw_ms: Infinity, certify_ms: Infinity, draws_per_s: 0 };
  let mechanism;
  for (let run = 0; run < RUNS; run++) {
    const used = globalThis.process?.cpuUsage?.();
    const started = performance.now();
    mechanism = await load(bytes);
    const loaded = performance.now();
    draw(mechanism, 1);
    best.first_draw_ms = Math.min(best.first_draw_ms, performance.now() - started);
    if (used && run === 0) {
      const { user, system } = process.cpuUsage(used);
      best.cold_first_draw_cpu_ms = (user + system) / 1000; // compiling included; says something on a busy machine too
    }
    best.load_ms = Math.min(best.load_ms, loaded - started);
    best.certify_ms = Math.min(best.certify_ms, time(() => mechanism.certify()));
    best.draws_per_s = Math.max(best.draws_per_s, (DRAWS / time(() => draw(mechanism, DRAWS))) * 1000);
    if (run === 0) Object.assign(best, { cold_first_draw_ms: best.first_draw_ms, cold_certify_ms: best.certify_ms });
  }
  const { kind, places } = mechanism;
  const rounded = Object.fromEntries(Object.entries(best).map(([name, value]) => [name, Math.round(value * 10) / 10]));
  return { kind, bytes: bytes.length, places: places.length, ...rounded };
}

function time(run) {
  const started = performance.now();
  run();
  return performance.now() - started;
}

/** Draw at points all over the box. */
function draw(mechanism, count) {
  const [low, high] = mechanism.box;
  const { center } = mechanism;
  for (let i = 0; i < count; i++) {
    const place = ((i * 0.618) % 1) - 0.5;
    if (center) mechanism.sample(center.lon + place / 20, center.lat + place / 40);
    else mechanism.samplePoint(...low.map((edge, axis) => edge + (0.5 + place) * (high[axis] - edge)));
  }
}

if (globalThis.process?.argv) {
  const { readFileSync } = await import("node:fs");
  const { noise, load } = await import("../js/src/index.js");
  for (const path of process.argv.slice(2)) {
    const found = await measure({ load }, new Uint8Array(readFileSync(path)));
    console.log(JSON.stringify({ file: path.split("/").at(-1), ...found }));
  }
  const made = () => noise({ epsilon: 2, lonLatBox: [[12.2, 41.6], [12.8, 42.1]] });
  const found = await measure({ load: async () => made() }, new Uint8Array());
  console.log(JSON.stringify({ file: "planar noise, no file", ...found }));
}
