// The checks of every engine, in Node.
import { readFile } from "node:fs/promises";
import test from "node:test";
import { checks } from "./checks.js";

const root = new URL("../../tests/", import.meta.url);
const bytes = async (path) => new Uint8Array(await readFile(new URL(path, root)));
const vectors = JSON.parse(await readFile(new URL("vectors/vectors.json", root), "utf8"));
const data = { vectors, read: (name) => bytes(`vectors/${name}`), readOther: (name) => bytes(`data/${name}`) };

for (const { name, run } of checks) test(name, () => run(data));
