// Changes to the match set: those that are made here, and those that others make meanwhile.

import { fetchData, fetchPage } from "../lib/http.js";
import { say, toast } from "../lib/notice.js";
import { element, replaceParts } from "../lib/parts.js";
import { current, reloadPanes } from "./panes.js";
import { objection, showPicked } from "./preview.js";
import { address, ask, changed, complain, field, forgetPicks, form, page, parameters, write } from "./state.js";

const ASK_EVERY = 1000; // ms
const FAILURES = 3; // in a row, before they are spoken of

const watched = { html: element("match-state").innerHTML, failures: 0 };

const changes = { last: Promise.resolve(false) };

/**
 * Make a change once those before it are made, and show what came of it; a conflict is explained, and what is picked stays picked.
 * @param {string} change
 * @param {[string, string][]} [fields]
 * @returns whether it was made
 */
export function make(change, fields = []) {
  changes.last = changes.last.then(() => makeNow(change, fields));
  return changes.last;
}

/** @param {string} change @param {[string, string][]} fields */
async function makeNow(change, fields) {
  const button = document.getElementById(change);
  if (button instanceof HTMLButtonElement && button.disabled) return false; // nothing is left to undo, or to do again
  page.busy = true;
  form.setAttribute("aria-busy", "true");
  page.ownChanges += 1;
  element("problem").hidden = true;
  try {
    const found = await send(change, fields);
    const isNew = `${found.set}` !== page.set;
    Object.assign(page, { set: `${found.set}`, version: found.version });
    if (change === "edit") forgetPicks();
    write();
    if (isNew) replaceParts(await fetchPage(location.href), "#sets, #files");
    await refresh();
    return true;
  } catch (failure) {
    const error = /** @type {any} */ (failure);
    if (error.status === 409) error.hint = say("Your selection is kept: check the preview, and match again");
    complain(error);
    if (error.status === 409) await refresh();
    return false;
  } finally {
    page.busy = false;
    form.removeAttribute("aria-busy");
  }
}

/** @param {string} change @param {[string, string][]} fields */
function send(change, fields) {
  const body = new URLSearchParams(fields);
  if (page.set) body.set("set", page.set);
  body.set("version", String(page.version));
  return fetchData(`${address}/${change}`, { method: "POST", body });
}

/** Apply what is picked. */
export async function apply() {
  if (page.busy) return; // a second click on what is being applied
  const problem = objection();
  if (problem) return toast(problem);
  const { golden, target } = page.picks;
  /** @type {[string, string][]} */
  const fields = [
    ...golden.map((name) => /** @type {[string, string]} */ (["golden", name])),
    ...target.map((name) => /** @type {[string, string]} */ (["target", name])),
    ["kind", page.doing],
    ["new_name", field(form, "new_name").value],
    ["descendants_box", "1"],
  ];
  if (page.descendants) fields.push(["descendants", "yes"]);
  if (await make("edit", fields)) current.pane.focus();
}

/** @param {any} found */
function showState(found) {
  Object.assign(page, { version: found.version, shown: found.shown });
  if (found.html === watched.html) return;
  watched.html = found.html;
  const box = element("match-state");
  const history = () => /** @type {HTMLDetailsElement | null} */ (document.getElementById("history"));
  const within = box.contains(document.activeElement) ? document.activeElement?.id : null;
  const isOpen = history()?.open;
  box.innerHTML = found.html;
  const opened = isOpen && history();
  if (opened) opened.open = true;
  if (within) document.getElementById(within)?.focus();
  const name = found.name || say("No match set");
  for (const place of document.querySelectorAll("#set-name, #state-card h3")) place.textContent = name;
  for (const input of /** @type {NodeListOf<HTMLInputElement>} */ (document.querySelectorAll('[name="version"]'))) {
    input.value = found.version;
  }
}

const askState = () => ask("state", parameters({ picks: {} }));

async function refresh() {
  showState(await askState());
  await reloadPanes();
  changed();
}

/** Keep up to date with what others decide. */
export async function watch() {
  let again = ASK_EVERY;
  try {
    if (page.set && !document.hidden && !page.busy) await look();
  } catch (failure) {
    const error = /** @type {any} */ (failure);
    if (error.status === 404) {
      const hint = say("Your selection is kept: choose another match set");
      return complain({ message: say("This match set was deleted"), hint });
    }
    watched.failures += 1;
    if (watched.failures === FAILURES) toast(say("The server does not answer"));
    again = ASK_EVERY * Math.min(10, 2 ** watched.failures);
  }
  setTimeout(watch, again);
}

async function look() {
  const { version, shown, ownChanges } = page;
  const found = await askState();
  watched.failures = 0;
  if (ownChanges !== page.ownChanges || page.busy) return;
  showState(found);
  if (found.version !== version) {
    const latest = /** @type {HTMLElement} */ (element("match-state").querySelector("[data-latest]")).dataset.latest;
    toast(latest ? say("Somebody else changed it: {what}", { what: latest }) : say("Somebody else changed it"));
    changed();
  }
  if (found.version !== version || found.shown !== shown) reloadPanes();
  if (found.version === version && found.shown !== shown) showPicked();
}
