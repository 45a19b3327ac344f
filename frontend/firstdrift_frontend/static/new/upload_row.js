// The row of an upload: how far it is, what it does, and what can be done about it.

import { say } from "../lib/notice.js";
import { element } from "../lib/parts.js";
import { amount, ask, isRefused, reasonOf } from "./sending.js";

/**
 * @typedef {import("./upload.js").Part} Part
 * @typedef {import("./upload.js").Side} Side
 */

/** @param {string} template @returns {HTMLElement} */
function made(template) {
  const { content } = /** @type {HTMLTemplateElement} */ (element(template));
  return /** @type {HTMLElement} */ (/** @type {Element} */ (content.firstElementChild).cloneNode(true));
}

/** @param {HTMLElement} bar @param {number} share */
function fill(bar, share) {
  bar.style.setProperty("--done", String(share));
  bar.closest(".bar")?.setAttribute("aria-valuenow", String(Math.floor(100 * share)));
}

/**
 * Add a row to the uploads.
 * @param {HTMLElement} panel
 * @param {Side} side
 * @param {string} name
 * @param {{cancel: () => void, again: () => void}} actions
 */
export function uploadRow(panel, side, name, actions) {
  const row = made("upload");
  /** @param {string} selector @returns {HTMLElement} */
  const part = (selector) => /** @type {HTMLElement} */ (row.querySelector(selector));
  /** @type {Map<Part, HTMLElement>} */
  const bars = new Map();

  part("strong").textContent = name;
  part("[data-side]").textContent = { golden: say("golden"), target: say("target"), mapping: say("mapping file") }[side];
  part("[data-cancel]").addEventListener("click", actions.cancel);
  part("[data-again]").addEventListener("click", actions.again);
  panel.querySelector("ul")?.append(row);
  panel.hidden = false;

  /**
   * Say what is done.
   * @param {string} text
   * @param {string} [kind]
   */
  function tell(text, kind = "") {
    const state = part("[data-state]");
    if (state.textContent !== text) state.textContent = text;
    row.dataset.kind = kind;
  }

  /** @param {Part} file */
  const there = (file) => file.arrived + (file.sending ?? 0);

  /**
   * Show how much has arrived.
   * @param {Part[]} files
   * @param {number} size
   */
  function show(files, size) {
    const sum = files.reduce((known, file) => known + there(file), 0);
    const whole = files.filter((file) => file.arrived === file.size).length;
    fill(part(".bar > i"), size ? sum / size : 1);
    const arrived = say("{there} of {size}", { there: amount(sum), size: amount(size) });
    const counted = say("{whole} of {all} files", { whole, all: files.length });
    part("[data-amount]").textContent = files.length > 1 ? `${arrived} · ${counted}` : arrived;
    for (const [file, line] of bars) fill(/** @type {HTMLElement} */ (line.querySelector("i")), there(file) / file.size);
  }

  /** @param {{files: number, size: number, share: number}} unpacked */
  function showUnpacked({ files, size, share }) {
    tell(say("Unpacking: {files} files, {size}", { files: files.toLocaleString(), size: amount(size) }));
    fill(part(".bar > i"), share);
  }

  /** @param {Part} file that is sent now */
  function begin(file) {
    const line = made("upload-file");
    /** @type {HTMLElement} */ (line.querySelector(".name")).textContent = file.path;
    bars.set(file, line);
    part(".upload-files").append(line);
  }

  /** @param {Part} file that is sent no more */
  function end(file) {
    bars.get(file)?.remove();
    bars.delete(file);
  }

  function showOver() {
    fill(part(".bar > i"), 1);
    part("[data-cancel]").textContent = say("Hide");
  }

  /** @param {boolean} isOffered */
  const offerAgain = (isOffered) => (part("[data-again]").hidden = !isOffered);

  /** @param {string} text @param {boolean} canGoOn */
  function fail(text, canGoOn) {
    offerAgain(canGoOn);
    part(".upload-files").replaceChildren();
    tell(text, "failed");
    if (!canGoOn) part("[data-cancel]").textContent = say("Hide");
  }

  /**
   * What is no dump is of no use, but it is not thrown away unasked.
   * @param {{path: string, problem: {text: string} | null}} dump
   * @param {() => void} deleted is told of it
   */
  function offerDeletion({ path, problem }, deleted) {
    const button = part("[data-delete]");
    const address = `/dumps/${encodeURIComponent(path.split("/").at(-1) ?? "")}`;
    const told = () => {
      const what = say("No dump was found in it: upload the folder that the dumping tool wrote, or an archive of it");
      tell([what, problem?.text].filter(Boolean).join(". "), "failed");
      button.textContent = say("Delete");
    };
    let isThere = true;
    button.hidden = false;
    button.addEventListener("click", async () => {
      try {
        await (isThere ? ask("DELETE", address) : ask("POST", `${address}/restore`));
      } catch (error) {
        return tell(isRefused(error) ? reasonOf(error) : say("The server does not answer"), "failed");
      }
      isThere = !isThere;
      if (isThere) return told();
      tell(say("Deleted"));
      button.textContent = say("Undo");
      deleted();
    });
    told();
  }

  /**
   * Offer the dumps in what was uploaded, one click each.
   * @param {string} path
   * @param {string[]} names of the dumps, from there
   */
  function offerDumps(path, names) {
    part("[data-holds]").replaceChildren(...names.map((name) => {
      const [dump, link] = [`${path}/${name}`, document.createElement("a")];
      const query = new URLSearchParams({ [side]: dump, [`${side}_at`]: dump.replace(/\/[^/]*$/, "") });
      link.href = `/new?${query}`;
      Object.assign(link.dataset, { swap: "", side });
      link.className = "chip name";
      link.textContent = name;
      return link;
    }));
  }

  function remove() {
    row.remove();
    panel.hidden = !panel.querySelector("ul > li");
  }

  return { tell, show, showUnpacked, showOver, begin, end, offerAgain, offerDeletion, offerDumps, fail, remove };
}
