// All uploads of a page. After a reload they go on as soon as the same files are chosen again.

import { ask, forget, isRefused, remembered } from "./sending.js";
import { upload } from "./upload.js";

/**
 * @typedef {import("./upload.js").Side} Side
 * @typedef {import("./upload.js").Upload} Upload
 */

/** @type {Record<Side, Side>} */
const OTHERS = { golden: "target", target: "golden", mapping: "mapping" };

/** @param {{path: string, size: number}[]} files */
const keyOf = (files) => JSON.stringify(files.map(({ path, size }) => [path, size]).sort());

/**
 * Go on with the uploads that were left, and add others.
 * @param {HTMLElement} panel
 * @param {import("./upload.js").Land} land is told what has arrived
 * @param {import("./upload.js").Leave} leave is told of a dump that was deleted again
 */
export function startUploads(panel, land, leave) {
  /** @type {Upload[]} */
  const interrupted = [];

  /** @param {import("./sending.js").Remembered} left */
  async function goOn({ id, side: kept, name }) {
    const side = /** @type {Side} */ (kept);
    let known;
    try {
      known = await ask("GET", `/${id}`);
    } catch (error) {
      if (isRefused(error)) forget(id);
      return;
    }
    const files = known.files.map((/** @type {object} */ file) => ({ ...file, file: null }));
    const one = upload({ panel, side, name, files, id, size: known.size, land, leave });
    if (known.state !== "receiving" || known.arrived === known.size) return one.goOn();
    one.interrupt();
    interrupted.push(one);
  }

  /**
   * Upload bundles of files: the first for a side, the second for the other.
   * @param {Side} side
   * @param {import("./files.js").Bundle[]} given
   */
  function add(side, given) {
    given.forEach((bundle, number) => {
      const files = bundle.files.map(({ path, file }) => ({ path, file, size: file.size, arrived: 0 }));
      const known = interrupted.find((one) => !one.state.isGone && keyOf(one.files) === keyOf(files));
      const at = number % 2 ? OTHERS[side] : side;
      if (!known) return upload({ panel, side: at, name: bundle.name, files, land, leave }).run();
      interrupted.splice(interrupted.indexOf(known), 1);
      for (const file of known.files) file.file = files.find((one) => one.path === file.path)?.file ?? null;
      return known.run();
    });
  }

  remembered().forEach(goOn);
  return { add };
}
