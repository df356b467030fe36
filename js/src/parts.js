/**
 * What only some files, norms or engines need, loaded when it is first needed. `whole.js` loads all of it beforehand, for
 * service workers, where `import()` is forbidden.
 */

export const parts = {
  noise: () => import("./laplace.js"),
  norms: () => import("./norms.js"),
  map: () => import("./epsilon_map.js"),
  format1: () => import("./format1.js"),
  zip64: () => import("./zip64.js"),
  inflate: () => import("./inflate.js"),
  sha256: () => import("./sha256.js"),
};
