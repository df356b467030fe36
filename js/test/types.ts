// Compiled by `npm run types`, never run: what an app writes must fit the declarations, and the sources must fit them too.
import { load, noise, NotCertified, type Certificate, type Mechanism, type Report } from "../index.js";
import * as source from "../src/index.js";

export async function report(bytes: Uint8Array, lon: number, lat: number): Promise<Report> {
  try {
    const mechanism: Mechanism = await load(bytes);
    return mechanism.sample(lon, lat);
  } catch (error) {
    if (error instanceof NotCertified) console.error(error.certificate.claim);
    throw error;
  }
}

export const rome = noise({ epsilon: 2, lonLatBox: [[12.2, 41.6], [12.8, 42.1]] });

// What the sources export is what is declared.
export const proved: Certificate = source.noise({ epsilon: 1, box: [[0], [1]] }).certify();
export const drawn: Report = source.noise({ epsilon: 1, lonLatBox: [[0, 0], [1, 1]] }).sample(0, 0);
// @ts-expect-error - a longitude is a number
rome.sample("12", 41);
