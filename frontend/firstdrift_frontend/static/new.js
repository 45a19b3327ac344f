// The form for a new comparison: folders open in place, what is typed is checked while it is typed, and what is
// dropped is uploaded. Keys in a list of folders: up and down, right opens, left goes up, space chooses.

import { explain, fetchPage, replaceParts, say, toast } from "./app.js";
import { dropped, picked, startUploads } from "./upload.js";

const form = document.getElementById("new");
let timer = 0;
let latest = 0;
let shown = 0;

// What is typed is not yet known to be a dump, or none: say so until the answer is there.
function look(side) {
  const wait = Object.assign(document.createElement("span"), { className: "faint", textContent: say("Being read") });
  document.getElementById(`part-said-${side}`).replaceChildren(wait);
}

async function refresh(focus) {
  const query = new URLSearchParams(new FormData(form));
  for (const [name, value] of [...query]) if (!value && !name.endsWith("_at")) query.delete(name);
  const asked = ++latest;
  const newer = await fetchPage(`/new?${query}`).catch(explain);
  if (!newer || asked < shown) return;
  shown = asked;
  const focused = document.activeElement?.closest?.("[data-part]") ? describe(document.activeElement) : null;
  replaceParts(newer);
  for (const side of ["golden", "target"]) {
    form.elements[side].setAttribute("aria-invalid", Boolean(document.querySelector(`#part-said-${side} .problem`)));
    if (form.elements[side].value !== (query.get(side) ?? "")) look(side);
  }
  showChosen();
  history.replaceState(null, "", `/new?${query}`);
  (focus ?? focused)?.()?.focus();
}

// A way to find a link again in a newer version of its part.
function describe(element) {
  const part = element.closest("[data-part]").id;
  const path = element.closest("[data-path]")?.dataset.path;
  const kind = element.matches(".choose-it") ? ".choose-it" : ".into";
  const href = element.getAttribute("href");
  return () => {
    const there = document.getElementById(part);
    const row = path && [...there.querySelectorAll("[data-path]")].find((one) => one.dataset.path === path);
    return row ? (row.querySelector(kind) ?? row.querySelector("a")) : [...there.querySelectorAll("a")].find((one) => one.getAttribute("href") === href);
  };
}

const firstOf = (side) => () => document.querySelector(`#part-folder-${side} .folders :is(.into, .choose-it)`) ?? document.querySelector(`#part-folder-${side} .trail [aria-current]`);

function follow(link) {
  const wanted = new URL(link.href).searchParams;
  const side = link.closest(".side").dataset.side;
  for (const name of [side, `${side}_at`, "order"]) if (wanted.has(name)) form.elements[name].value = wanted.get(name);
  // The other side opens where the first was chosen: the two often lie together.
  const other = side === "golden" ? "target" : "golden";
  const chooses = link.matches(".choose-it, .chip");
  if (chooses && !form.elements[other].value) form.elements[`${other}_at`].value = form.elements[`${side}_at`].value;
  refresh(chooses || link.closest(".segments") ? undefined : firstOf(side));
}

form.addEventListener("click", (event) => {
  const link = event.target.closest("a[data-swap]");
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  follow(link);
});

form.addEventListener("keydown", (event) => {
  const list = event.target.closest(".folders");
  if (!list || event.ctrlKey || event.metaKey || event.altKey) return;
  const row = event.target.closest("li");
  const rows = [...list.querySelectorAll("li:has(a)")];
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (step) rows[rows.indexOf(row) + step]?.querySelector(".into, .choose-it")?.focus();
  else if (event.key === "ArrowRight") row.querySelector(".into")?.click();
  else if (event.key === "ArrowLeft") [...list.parentElement.querySelectorAll(".trail nav a")].at(-2)?.click();
  else if (event.key === " ") row.querySelector(".choose-it")?.click();
  else return;
  event.preventDefault();
});

function showChosen() {
  for (const chosen of form.querySelectorAll(".folders .is-chosen")) {
    const list = chosen.parentElement;
    const above = chosen.offsetTop - list.offsetTop;
    if (above < list.scrollTop || above > list.scrollTop + list.clientHeight - 40) list.scrollTop = above - list.clientHeight / 2;
  }
}

form.addEventListener("input", (event) => {
  if (event.target.type === "file") return;
  if (["golden", "target"].includes(event.target.name)) look(event.target.name);
  clearTimeout(timer);
  timer = setTimeout(typed, event.inputType === "insertFromPaste" ? 0 : 250);
});

// Typing is over: after a moment, or at once when the field is left or something was pasted.
function typed() {
  clearTimeout(timer);
  timer = 0;
  refresh();
}

// What has been uploaded becomes the dump of its side, or is opened there if several dumps lie in it. Of what is no
// dump, the side says why not.
function landed(side, dump) {
  if (dump.format || !dump.holds.length) {
    form.elements[side].value = dump.path;
    form.elements[`${side}_at`].value = dump.path.replace(/\/[^/]*$/, "");
  } else {
    form.elements[`${side}_at`].value = dump.path;
    const other = side === "golden" ? "target" : "golden";
    if (!form.elements[other].value) form.elements[`${other}_at`].value = dump.path;
    toast(say("Choose a dump in what was uploaded"));
  }
  refresh();
}

function left(side, path) {
  if (form.elements[side].value === path) form.elements[side].value = "";
  refresh();
}

function mapped(dump, names) {
  const field = form.elements.mapping;
  field.value = [...field.value.split("\n").filter(Boolean), ...names.map((name) => `${dump.path}/${name}`)].join("\n");
  field.rows = field.value.split("\n").length;
  refresh();
}

const uploads = document.getElementById("uploads") && startUploads(document.getElementById("uploads"), { golden: landed, target: landed, mapping: (_, dump, names) => mapped(dump, names) }, left);

form.addEventListener("change", (event) => {
  if (event.target.type !== "file") return void (timer && typed());
  if (!uploads) return;
  const side = "mapping" in event.target.dataset ? "mapping" : event.target.closest(".side").dataset.side;
  const given = picked(event.target.files, side === "mapping");
  event.target.value = "";
  uploads.add(side, given);
});

for (const kind of ["dragover", "dragleave", "drop"]) {
  form.addEventListener(kind, async (event) => {
    if (!uploads || !event.dataTransfer.types.includes("Files")) return;
    event.preventDefault();
    const side = event.target.closest(".side");
    for (const one of form.querySelectorAll(".side")) one.classList.toggle("is-target", kind === "dragover" && one === side);
    if (kind === "drop") uploads.add(side?.dataset.side ?? (form.elements.golden.value ? "target" : "golden"), await dropped(event.dataTransfer));
  });
}

showChosen();
