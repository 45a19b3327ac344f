// The form for a new comparison: folders open in place, and what is typed is checked while it is typed.

import { fetchPage, replaceParts } from "./app.js";

const form = document.getElementById("new");
let timer = 0;
let latest = 0;

async function refresh() {
  const query = new URLSearchParams(new FormData(form));
  for (const [name, value] of [...query]) if (!value && !name.endsWith("_at")) query.delete(name);
  const asked = ++latest;
  const newer = await fetchPage(`/new?${query}`);
  if (asked !== latest) return;
  replaceParts(newer);
  showChosen();
  history.replaceState(null, "", `/new?${query}`);
}

form.addEventListener("click", (event) => {
  const link = event.target.closest("a[data-swap]");
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  const wanted = new URL(link.href).searchParams;
  const side = link.closest(".side").querySelector("input[type=text]").name;
  for (const name of [side, `${side}_at`]) if (wanted.has(name)) form.elements[name].value = wanted.get(name);
  // The other side opens where the first was chosen: the two often lie together.
  const other = side === "golden" ? "target" : "golden";
  if (wanted.get(side) && !form.elements[other].value) form.elements[`${other}_at`].value = form.elements[`${side}_at`].value;
  refresh();
});

function showChosen() {
  for (const chosen of form.querySelectorAll(".folders .is-chosen")) {
    const list = chosen.parentElement;
    const above = chosen.offsetTop - list.offsetTop;
    if (above < list.scrollTop || above > list.scrollTop + list.clientHeight - 40) list.scrollTop = above - list.clientHeight / 2;
  }
}

form.addEventListener("input", () => {
  clearTimeout(timer);
  timer = setTimeout(refresh, 250);
});

showChosen();
