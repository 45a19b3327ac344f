// The front page by keyboard: / searches, up and down go from row to row, n begins a comparison, Delete deletes.

const links = () => [...document.querySelectorAll(".comparisons .what > a, .dump-list .start > a:first-child")];

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input, select, textarea")) return;
  const all = links();
  const row = event.target.closest?.("li");
  const at = all.findIndex((link) => link.closest("li") === row);
  if (event.key === "/") document.getElementById("search").focus();
  else if (event.key === "n") location.assign("/new");
  else if (event.key === "ArrowDown") all[at + 1]?.focus();
  else if (event.key === "ArrowUp") all[Math.max(0, at - 1)]?.focus();
  else if (event.key === "Delete") row?.querySelector("form button")?.click();
  else return;
  event.preventDefault();
});
