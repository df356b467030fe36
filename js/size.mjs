// `node size.mjs`: how large the package is when an app bundles it, minified; fails above the limit.
import { gzipSync } from "node:zlib";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const LIMIT = 60_000;
const entry = fileURLToPath(new URL("src/index.js", import.meta.url));
const { outputFiles } = await build({ entryPoints: [entry], bundle: true, minify: true, format: "esm", target: "es2022", write: false });
const { contents } = outputFiles[0];
console.log(JSON.stringify({ minified_bytes: contents.length, gzipped_bytes: gzipSync(contents).length, limit_bytes: LIMIT }));
process.exitCode = contents.length < LIMIT ? 0 : 1;
