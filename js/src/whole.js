/** The package with every part of it loaded at once, for service workers, where `import()` is forbidden. */

import * as map from "./epsilon_map.js";
import * as format1 from "./format1.js";
import * as inflate from "./inflate.js";
import * as noise from "./laplace.js";
import * as norms from "./norms.js";
import { parts } from "./parts.js";
import * as sha256 from "./sha256.js";
import * as zip64 from "./zip64.js";

for (const [name, part] of Object.entries({ map, format1, inflate, noise, norms, sha256, zip64 })) {
  Object.assign(parts, { [name]: async () => part });
}

export * from "./index.js";
