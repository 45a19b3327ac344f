// Uploads in chunks. What has arrived is known to the server: after a broken connection they go on by themselves,
// after a reload as soon as the same files are chosen again.

import { say } from "./app.js";

const ROUTE = "/api/v1/uploads";
const CHUNK = 8 << 20;
const AT_ONCE = 3;
const LONGEST_PAUSE = 15_000;
const ARCHIVE = /\.(zip|tar|tgz|txz|tbz2|tar\.(gz|xz|bz2))$/i;
const REMEMBERED = "firstdrift.uploads";

class Refused extends Error {
  constructor(status, text) {
    super(text);
    this.status = status;
  }
}

// Bundles of files, one for each dump: {name, files: [{path, file}]}.
function bundles(files, together) {
  const found = new Map();
  for (const { path, file } of files) {
    const top = path.includes("/") ? path.split("/")[0] : null;
    const key = top !== null ? `folder ${top}` : ARCHIVE.test(path) && !together ? `archive ${path}` : "files";
    if (!found.has(key)) found.set(key, { name: top ?? path, files: [] });
    found.get(key).files.push({ path, file });
  }
  return [...found.values()];
}

export function picked(list, together = false) {
  return bundles([...list].map((file) => ({ path: file.webkitRelativePath || file.name, file })), together);
}

// What was dropped; entries must be asked for at once, their files may come later.
export async function dropped(transfer) {
  const given = [...transfer.items].filter((item) => item.kind === "file").map((item) => item.webkitGetAsEntry?.() ?? item.getAsFile());
  const files = [];
  const walk = async (entry, path) => {
    if (entry instanceof File) files.push({ path: entry.name, file: entry });
    else if (entry.isFile) files.push({ path, file: await new Promise((done, failed) => entry.file(done, failed)) });
    else {
      const reader = entry.createReader();
      const read = () => new Promise((done, failed) => reader.readEntries(done, failed));
      for (let some = await read(); some.length; some = await read()) for (const inner of some) await walk(inner, `${path}/${inner.name}`);
    }
  };
  for (const entry of given) if (entry) await walk(entry, entry.name);
  return bundles(files);
}

const remembered = () => JSON.parse(localStorage.getItem(REMEMBERED) ?? "[]");
const remember = (list) => localStorage.setItem(REMEMBERED, JSON.stringify(list));
const forget = (id) => remember(remembered().filter((one) => one.id !== id));

function answerOf(status, text) {
  let said = {};
  try {
    said = JSON.parse(text);
  } catch {
    // Whatever stands between us and the server answered.
  }
  if (status >= 200 && status < 300) return said;
  if (!status || (status >= 500 && status !== 507)) throw new TypeError("no answer");
  throw new Refused(status, [said.error, said.hint].filter(Boolean).join(". ") || String(status));
}

async function ask(method, address, body, signal) {
  const options = { method, signal, headers: { accept: "application/json" } };
  if (body) Object.assign(options, { body: JSON.stringify(body), headers: { ...options.headers, "content-type": "application/json" } });
  const answer = await fetch(address, options);
  return answerOf(answer.status, await answer.text());
}

function put(address, piece, signal, sent) {
  return new Promise((done, failed) => {
    const request = new XMLHttpRequest();
    request.open("PUT", address);
    request.upload.onprogress = (event) => sent(event.loaded);
    request.onloadend = () => {
      try {
        done(answerOf(request.status, request.responseText));
      } catch (error) {
        failed(error);
      }
    };
    signal.addEventListener("abort", () => request.abort(), { once: true });
    request.send(piece);
  });
}

const pause = (time) => new Promise((done) => setTimeout(done, time));

function amount(bytes) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  const power = Math.min(units.length - 1, Math.max(0, Math.floor(Math.log10(Math.max(bytes, 1)) / 3)));
  const value = bytes / 1000 ** power;
  return `${value.toFixed(power && value < 100 ? 1 : 0)} ${units[power]}`;
}

class Upload {
  constructor(panel, side, name, files, land, leave) {
    Object.assign(this, { side, name, files, land, leave, id: null, arrived: 0, stop: new AbortController(), bars: new Map() });
    this.size = files.reduce((sum, file) => sum + file.size, 0);
    this.row = document.getElementById("upload").content.firstElementChild.cloneNode(true);
    this.row.querySelector("strong").textContent = name;
    this.row.querySelector("[data-side]").textContent = { golden: say("golden"), target: say("target"), mapping: say("mapping file") }[side];
    this.row.querySelector("[data-cancel]").addEventListener("click", () => this.cancel());
    this.row.querySelector("[data-again]").addEventListener("click", () => this.run());
    panel.querySelector("ul").append(this.row);
    panel.hidden = false;
  }

  tell(text, kind = "") {
    const state = this.row.querySelector("[data-state]");
    if (state.textContent !== text) state.textContent = text;
    this.row.dataset.kind = kind;
  }

  bar(element, share) {
    element.style.setProperty("--done", share);
    element.closest(".bar").setAttribute("aria-valuenow", Math.floor(100 * share));
  }

  show() {
    const there = this.files.reduce((sum, file) => sum + file.arrived + (file.sending ?? 0), 0);
    const whole = this.files.filter((file) => file.arrived === file.size).length;
    this.bar(this.row.querySelector(".bar > i"), this.size ? there / this.size : 1);
    const arrived = say("{there} of {size}", { there: amount(there), size: amount(this.size) });
    const counted = say("{whole} of {all} files", { whole, all: this.files.length });
    this.row.querySelector("[data-amount]").textContent = this.files.length > 1 ? `${arrived} · ${counted}` : arrived;
    for (const [file, row] of this.bars) this.bar(row.querySelector("i"), (file.arrived + (file.sending ?? 0)) / file.size);
  }

  async run() {
    this.row.querySelector("[data-again]").hidden = true;
    this.stop = new AbortController();
    try {
      await this.begin();
      const waiting = this.files.map((file, number) => ({ file, number })).filter(({ file }) => file.arrived < file.size);
      await Promise.all(Array.from({ length: AT_ONCE }, async () => {
        for (let next = waiting.shift(); next; next = waiting.shift()) await this.send(next.file, next.number);
      }));
      await this.finish();
    } catch (error) {
      const stopped = this.stop.signal.aborted;
      this.stop.abort();
      if (!stopped || error instanceof Refused) this.fail(error);
    }
  }

  // Whatever asks the server goes on once it answers again.
  async patiently(what) {
    for (let wait = 500; ; wait = Math.min(2 * wait, LONGEST_PAUSE)) {
      this.stop.signal.throwIfAborted();
      try {
        return await what();
      } catch (error) {
        if (error instanceof Refused || this.stop.signal.aborted) throw error;
        this.tell(say("The server does not answer; it goes on by itself"), "waiting");
        await pause(wait);
      }
    }
  }

  async begin() {
    this.tell(say("Uploading"));
    const files = this.files.map(({ path, size }) => ({ path, size }));
    if (this.id === null) {
      const made = await this.patiently(() => ask("POST", ROUTE, { name: this.name, files }, this.stop.signal));
      this.id = made.id;
      remember([...remembered(), { id: this.id, side: this.side, name: this.name }]);
    }
    await this.look();
  }

  async look() {
    const known = await this.patiently(() => ask("GET", `${ROUTE}/${this.id}`, null, this.stop.signal));
    if (known.state === "receiving") known.files.forEach((file, number) => (this.files[number].arrived = file.arrived));
    else for (const file of this.files) file.arrived = file.size;
    this.show();
    return known;
  }

  async send(file, number) {
    const row = document.getElementById("upload-file").content.firstElementChild.cloneNode(true);
    row.querySelector(".name").textContent = file.path;
    this.bars.set(file, row);
    this.row.querySelector(".upload-files").append(row);
    while (file.arrived < file.size) {
      const piece = file.file.slice(file.arrived, file.arrived + CHUNK);
      const address = `${ROUTE}/${this.id}/files/${number}?offset=${file.arrived}`;
      const sent = (bytes) => {
        file.sending = Math.min(bytes, piece.size);
        this.show();
      };
      this.stop.signal.throwIfAborted();
      try {
        const answer = await put(address, piece, this.stop.signal, sent);
        Object.assign(file, { arrived: answer.arrived, sending: 0 });
        this.tell(say("Uploading"));
        this.show();
      } catch (error) {
        file.sending = 0;
        this.stop.signal.throwIfAborted();
        if (error instanceof Refused && error.status !== 409) throw error;
        if (!(error instanceof Refused)) await pause(1000);
        await this.look();
      }
    }
    this.bars.delete(file);
    row.remove();
  }

  async finish() {
    const complete = () => ask("POST", `${ROUTE}/${this.id}/complete`, null, this.stop.signal);
    let done = null;
    const asked = complete().catch((error) => error);
    asked.then((answer) => (done = answer));
    for (let wait = 100; done === null; wait = 500) {
      await Promise.race([asked, pause(wait)]);
      if (done !== null) break;
      // A refused archive is gone at once: why it was refused is what the first question is answered with.
      const known = await this.look().catch(() => asked.then(() => ({})));
      if (known.unpacked) {
        this.tell(say("Unpacking: {files} files, {size}", { files: known.unpacked.files.toLocaleString(), size: amount(known.unpacked.size) }));
        this.bar(this.row.querySelector(".bar > i"), known.unpacked.share);
      }
    }
    // Without an answer, or while another page has it unpacked, the server knows how it went.
    if (done instanceof Error && (!(done instanceof Refused) || done.status === 409)) {
      await pause(1000);
      const known = await this.look();
      return known.state === "done" ? this.landed(known) : this.finish();
    }
    if (done instanceof Error) throw done;
    this.landed(done);
  }

  landed(done) {
    forget(this.id);
    this.bar(this.row.querySelector(".bar > i"), 1);
    this.row.querySelector("[data-cancel]").textContent = say("Hide");
    this.isOver = true;
    const { format, holds } = done.dump;
    if (this.side === "mapping" || format || holds.length) this.tell(format ? say("Done: {format}", { format }) : say("Done"), "done");
    else this.offerDeletion(done.dump.path);
    this.land(this.side, done.dump, this.files.map((file) => file.path));
  }

  // What is no dump is of no use, but it is not thrown away unasked.
  offerDeletion(path) {
    const button = this.row.querySelector("[data-delete]");
    const name = encodeURIComponent(path.split("/").at(-1));
    const told = () => {
      this.tell(say("No dump was found in it: upload the folder that the dumping tool wrote, or an archive of it"), "failed");
      button.textContent = say("Delete");
    };
    let isThere = true;
    button.hidden = false;
    button.addEventListener("click", async () => {
      try {
        await (isThere ? ask("DELETE", `${ROUTE}/dumps/${name}`) : ask("POST", `${ROUTE}/dumps/${name}/restore`));
      } catch (error) {
        return this.tell(error instanceof Refused ? error.message : say("The server does not answer"), "failed");
      }
      isThere = !isThere;
      if (isThere) return told();
      this.tell(say("Deleted"));
      button.textContent = say("Undo");
      this.leave(this.side, path);
    });
    told();
  }

  fail(error) {
    const canGoOn = error.status === 507 && this.id !== null;
    if (error.status === 422 || error.status === 404) this.drop();
    this.row.querySelector("[data-again]").hidden = !canGoOn;
    this.row.querySelector(".upload-files").replaceChildren();
    this.tell(error.message, "failed");
    if (!canGoOn) this.row.querySelector("[data-cancel]").textContent = say("Hide");
  }

  drop() {
    if (this.id !== null) forget(this.id);
    if (this.id !== null) ask("DELETE", `${ROUTE}/${this.id}`).catch(() => {});
    this.id = null;
  }

  cancel() {
    this.stop.abort();
    if (!this.isOver) this.drop();
    const panel = this.row.closest("section");
    this.row.remove();
    panel.hidden = !panel.querySelector("ul > li");
    this.isGone = true;
  }
}

// `landing` says for each side what to do with a dump that has arrived, `leaving` what if one is deleted.
export function startUploads(panel, landing, leaving) {
  const interrupted = [];

  // What was under way when the page was left: it is unpacked meanwhile, or waits for its files.
  async function goOn({ id, side, name }) {
    let known;
    try {
      known = await ask("GET", `${ROUTE}/${id}`);
    } catch (error) {
      if (error instanceof Refused) forget(id);
      return;
    }
    const files = known.files.map((file) => ({ ...file, file: null }));
    const upload = new Upload(panel, side, name, files, landing[side], leaving);
    upload.id = id;
    upload.size = known.size;
    const isWhole = known.arrived === known.size;
    if (known.state !== "receiving" || isWhole) return upload.finish().catch((error) => upload.fail(error));
    upload.show();
    upload.tell(say("Interrupted: choose the same files again, and it goes on"), "waiting");
    interrupted.push(upload);
  }

  const keyOf = (files) => JSON.stringify(files.map(({ path, size }) => [path, size]).sort());

  function add(side, given) {
    const others = { golden: "target", target: "golden", mapping: "mapping" };
    given.forEach((bundle, number) => {
      const at = number % 2 ? others[side] : side;
      const files = bundle.files.map(({ path, file }) => ({ path, file, size: file.size, arrived: 0 }));
      const known = interrupted.find((one) => !one.isGone && keyOf(one.files) === keyOf(files));
      if (known) {
        interrupted.splice(interrupted.indexOf(known), 1);
        for (const file of known.files) file.file = files.find((one) => one.path === file.path).file;
        return known.run();
      }
      return new Upload(panel, at, bundle.name, files, landing[at], leaving).run();
    });
  }

  remembered().forEach(goOn);
  return { add };
}
