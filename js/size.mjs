// `node size.mjs`: how large the package is when an app bundles it, minified; fails above the limit.
//
// Counted is what an app that imports `load` always carries: what reads, proves and draws splines with a norm of order 1, 2
// or ∞. The other parts are loaded when a file or an engine first needs them; they are listed each on its own, without what
// the first chunk has already.
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import { build } from "esbuild";

const LIMIT = 35_000;
const here = fileURLToPath(new URL(".", import.meta.url));
const options = { bundle: true, minify: true, format: "esm", target: "es2022", write: false, metafile: true, outdir: "out", absWorkingDir: here };
const sizes = ({ contents }) => ({ minified_bytes: contents.length, gzipped_bytes: gzipSync(contents).length });

const stdin = { contents: 'export { load } from "./src/index.js";', resolveDir: here };
const { outputFiles, metafile } = await build({ ...options, stdin, splitting: true, chunkNames: "[name]-[hash]" });
const chunks = Object.entries(metafile.outputs);
const first = new Set();
const follow = (name) => {
  first.add(name);
  for (const { path, kind } of metafile.outputs[name].imports) if (kind === "import-statement" && !first.has(path)) follow(path);
};
follow(chunks.find(([, { entryPoint }]) => entryPoint === "<stdin>")[0]);
const contentsOf = (name) => outputFiles.find(({ path }) => path.endsWith(name)).contents;
const together = Buffer.concat([...first].map(contentsOf));
const later = Object.fromEntries(
  chunks.filter(([name]) => !first.has(name)).map(([name, { bytes, inputs }]) => [Object.keys(inputs).map((path) => path.split("/").at(-1)).join(" "), bytes]),
);
const whole = await build({ ...options, entryPoints: ["src/whole.js"] });
console.log(JSON.stringify({ ...sizes({ contents: together }), limit_bytes: LIMIT, later, whole: sizes(whole.outputFiles[0]) }, null, 1));
if (process.argv[2] === "modules") {
  const bytes = {};
  for (const name of first) for (const [path, { bytesInOutput }] of Object.entries(metafile.outputs[name].inputs)) bytes[path] = (bytes[path] ?? 0) + bytesInOutput;
  console.log(JSON.stringify(Object.fromEntries(Object.entries(bytes).sort(([, a], [, b]) => b - a)), null, 1));
}
process.exitCode = together.length < LIMIT ? 0 : 1;
