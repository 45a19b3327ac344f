// One upload, in chunks, and its row on the page. What has arrived is known to the server: after a broken connection
// it goes on by itself.

import { say } from "../lib/notice.js";
import { ask, forget, isRefused, pause, put, reasonOf, remember } from "./sending.js";
import { uploadRow } from "./upload_row.js";

const CHUNK = 8 << 20;
const AT_ONCE = 3;
const LONGEST_PAUSE = 15_000; // ms
const [CONFLICT, NO_ROOM] = [409, 507];

/**
 * @typedef {"golden" | "target" | "mapping"} Side
 * @typedef {object} Part a file of an upload
 * @property {string} path
 * @property {File | null} file null: it has to be chosen again
 * @property {number} size
 * @property {number} arrived bytes that the server has
 * @property {number} [sending] bytes that are on their way
 * @typedef {(side: Side, dump: any, paths: string[]) => void} Land
 * @typedef {(side: Side, path: string) => void} Leave
 * @typedef {ReturnType<typeof upload>} Upload
 */

/**
 * Make an upload; nothing is sent before it runs.
 * @param {object} given
 * @param {HTMLElement} given.panel of all uploads
 * @param {Side} given.side that the dump is for
 * @param {string} given.name
 * @param {Part[]} given.files
 * @param {string | null} [given.id] of what the server has already
 * @param {number} [given.size] in bytes
 * @param {Land} given.land is told what has arrived
 * @param {Leave} given.leave is told of a dump that was deleted again
 */
export function upload({ panel, side, name, files, id = null, size = total(files), land, leave }) {
  const state = { id, isOver: false, isGone: false, stop: new AbortController() };
  const row = uploadRow(panel, side, name, { cancel, again: run });
  const signal = () => state.stop.signal;
  const show = () => row.show(files, size);

  async function run() {
    row.offerAgain(false);
    state.stop = new AbortController();
    try {
      await begin();
      const waiting = files.map((file, number) => ({ file, number })).filter(({ file }) => file.arrived < file.size);
      await Promise.all(Array.from({ length: AT_ONCE }, async () => {
        for (let next = waiting.shift(); next; next = waiting.shift()) await send(next.file, next.number);
      }));
      await finish();
    } catch (error) {
      const isStopped = signal().aborted;
      state.stop.abort();
      if (!isStopped || isRefused(error)) fail(error);
    }
  }

  /**
   * Whatever asks the server goes on once it answers again.
   * @param {() => Promise<any>} what
   */
  async function patiently(what) {
    for (let wait = 500; ; wait = Math.min(2 * wait, LONGEST_PAUSE)) {
      signal().throwIfAborted();
      try {
        return await what();
      } catch (error) {
        if (isRefused(error) || signal().aborted) throw error;
        row.tell(say("The server does not answer; it goes on by itself"), "waiting");
        await pause(wait);
      }
    }
  }

  async function begin() {
    row.tell(say("Uploading"));
    if (state.id === null) {
      const data = { name, files: files.map((file) => ({ path: file.path, size: file.size })) };
      const made = await patiently(() => ask("POST", "", { data, signal: signal() }));
      state.id = made.id;
      remember({ id: made.id, side, name });
    }
    await look();
  }

  async function look() {
    const known = await patiently(() => ask("GET", `/${state.id}`, { signal: signal() }));
    const isReceiving = known.state === "receiving";
    files.forEach((file, number) => (file.arrived = isReceiving ? known.files[number].arrived : file.size));
    show();
    return known;
  }

  /** @param {Part} file @param {number} number */
  async function send(file, number) {
    row.begin(file);
    while (file.arrived < file.size) {
      signal().throwIfAborted();
      try {
        Object.assign(file, { arrived: (await sendPiece(file, number)).arrived, sending: 0 });
        row.tell(say("Uploading"));
        show();
      } catch (error) {
        file.sending = 0;
        signal().throwIfAborted();
        if (isRefused(error) && error.status !== CONFLICT) throw error;
        if (!isRefused(error)) await pause(1000);
        await look();
      }
    }
    row.end(file);
  }

  /** @param {Part} file @param {number} number */
  function sendPiece(file, number) {
    const piece = /** @type {File} */ (file.file).slice(file.arrived, file.arrived + CHUNK);
    return put(`/${state.id}/files/${number}?offset=${file.arrived}`, piece, signal(), (bytes) => {
      file.sending = Math.min(bytes, piece.size);
      show();
    });
  }

  /** @returns {Promise<void>} */
  async function finish() {
    /** @type {any} */
    let done = null;
    const asked = ask("POST", `/${state.id}/complete`, { signal: signal() }).catch((error) => error);
    asked.then((answer) => (done = answer));
    for (let wait = 100; done === null; wait = 500) {
      await Promise.race([asked, pause(wait)]);
      if (done !== null) break;
      // A refused archive is gone at once: why it was refused is what the first question is answered with.
      const known = await look().catch(() => asked.then(() => ({})));
      if (known.unpacked) row.showUnpacked(known.unpacked);
    }
    // Without an answer, or while another page has it unpacked, the server knows how it went.
    if (done instanceof Error && (!isRefused(done) || done.status === CONFLICT)) {
      await pause(1000);
      const known = await look();
      return known.state === "done" ? landed(known) : finish();
    }
    if (done instanceof Error) throw done;
    landed(done);
  }

  /** @param {any} done */
  function landed(done) {
    forget(/** @type {string} */ (state.id));
    state.isOver = true;
    row.showOver();
    const { format, holds, path } = done.dump;
    if (side === "mapping" || format || holds.length) row.tell(format ? say("Done: {format}", { format }) : say("Done"), "done");
    else row.offerDeletion(done.dump, () => leave(side, path));
    if (side !== "mapping") row.offerDumps(path, holds);
    land(side, done.dump, files.map((file) => file.path));
  }

  /** @param {any} error */
  function fail(error) {
    const canGoOn = error.status === NO_ROOM && state.id !== null;
    if (error.status === 422 || error.status === 404) drop();
    row.fail(reasonOf(error), canGoOn);
  }

  function drop() {
    if (state.id !== null) {
      forget(state.id);
      ask("DELETE", `/${state.id}`).catch(() => {});
    }
    state.id = null;
  }

  function cancel() {
    state.stop.abort();
    if (!state.isOver) drop();
    row.remove();
    state.isGone = true;
  }

  /** What was under way when the page was left is unpacked meanwhile. */
  const goOn = () => finish().catch(fail);

  /** It waits for its files to be chosen again. */
  function interrupt() {
    show();
    row.tell(say("Interrupted: choose the same files again, and it goes on"), "waiting");
  }

  return { files, state, run, goOn, interrupt };
}

/** @param {Part[]} files */
const total = (files) => files.reduce((sum, file) => sum + file.size, 0);

