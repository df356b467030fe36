// Puts the extension together for a browser: `node build.mjs chromium|firefox FOLDER`.
//
// The drawing and proving is the package's own source, which is copied beside the extension's: browsers load nothing
// from outside an extension's folder.

import { cp, mkdir, readFile, rename, rm, writeFile } from "node:fs/promises";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";

const HERE = dirname(fileURLToPath(import.meta.url));
const CORE = join(HERE, "..", "src");

const BROWSERS = {
  chromium: {
    // 119 knows `match_origin_as_fallback` in the manifest.
    minimum_chrome_version: "119",
    background: { service_worker: "src/background.js", type: "module" },
    // A service worker cannot ask for the position; a document off screen can.
    permissions: ["offscreen"],
  },
  firefox: {
    browser_specific_settings: {
      gecko: {
        id: "metricdp@metricdp.invalid",
        strict_min_version: "142.0",
        data_collection_permissions: { required: ["none"] },
      },
    },
    background: { scripts: ["src/background.js"], type: "module" },
    permissions: [],
  },
};

export async function build(browser, folder, core = CORE) {
  const own = BROWSERS[browser];
  if (!own) throw new RangeError(`The browser must be one of ${Object.keys(BROWSERS).join(", ")}, got ${browser}.`);
  const manifest = JSON.parse(await readFile(join(HERE, "manifest.json"), "utf8"));
  const permissions = [...manifest.permissions, ...own.permissions];
  const target = resolve(folder);
  const aside = `${target}.${process.pid}.tmp`;
  await mkdir(dirname(target), { recursive: true });
  try {
    await cp(join(HERE, "src"), join(aside, "src"), { recursive: true });
    await cp(join(HERE, "icon.png"), join(aside, "icon.png"));
    await cp(core, join(aside, "src", "core"), { recursive: true, filter: (path) => !path.endsWith(".d.ts") });
    await writeFile(join(aside, "manifest.json"), `${JSON.stringify({ ...manifest, ...own, permissions }, null, 2)}\n`);
    await rm(target, { recursive: true, force: true });
    await rename(aside, target);
  } finally {
    await rm(aside, { recursive: true, force: true });
  }
  return target;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const [browser, folder = join(HERE, "dist", browser ?? "")] = process.argv.slice(2);
  console.log(await build(browser, folder));
}
