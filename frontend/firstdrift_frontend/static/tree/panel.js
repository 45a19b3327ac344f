// The node that is selected, beside the tree.

import { lastOf, request } from "../lib/http.js";
import { explain } from "../lib/notice.js";
import { lookAhead, panel, rows, view } from "./view.js";

const HELD = 150; // ms between the steps of a key that is held down, at most
const REST = 90; // ms

const steps = { timer: 0, last: -Infinity };

/** Show the node; while a key is held down, only the one where it stops is fetched. */
export function showNode() {
  clearTimeout(steps.timer);
  const isHeld = performance.now() - steps.last < HELD;
  steps.last = performance.now();
  if (isHeld) steps.timer = window.setTimeout(fetchNode, REST);
  else fetchNode();
}

const fetchNode = lastOf(async (signal) => {
  if (view.selected === null) return panel.replaceChildren();
  try {
    const address = `${rows.dataset.panel}${view.selected}?panel=true`;
    const answer = await request(address, { signal, headers: { accept: "text/html" } });
    if (!answer.ok) return panel.replaceChildren();
    const text = await answer.text();
    const scrolled = panel.scrollTop;
    panel.innerHTML = text;
    panel.scrollTop = Math.min(scrolled, panel.scrollHeight);
    lookAhead();
  } catch (error) {
    if (signal.aborted) return;
    // What is shown is of another node than the one that is picked.
    panel.replaceChildren();
    explain(error);
  }
});
