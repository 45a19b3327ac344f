// The board by keyboard: arrows go from link to link of the table, / to the search.

// What can be focused in a row, by its column.
const stop = (cell) => cell?.querySelector("a");

function step(cell, down, right) {
  for (let next = cell; next; ) {
    if (right) next = right > 0 ? next.nextElementSibling : next.previousElementSibling;
    else {
      const row = down > 0 ? next.parentElement.nextElementSibling : next.parentElement.previousElementSibling;
      next = row?.cells[next.cellIndex];
    }
    if (stop(next)) return stop(next);
  }
  return null;
}

const MOVES = {
  ArrowRight: (cell) => step(cell, 0, 1),
  ArrowLeft: (cell) => step(cell, 0, -1),
  ArrowDown: (cell) => step(cell, 1, 0),
  ArrowUp: (cell) => step(cell, -1, 0),
  Home: (cell) => stop(cell.parentElement.cells[0]),
  End: (cell) => [...cell.parentElement.cells].map(stop).filter(Boolean).at(-1),
};

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input, select")) return;
  if (event.key === "/") {
    event.preventDefault();
    document.querySelector("#board [name=q]").focus();
    return;
  }
  const table = document.getElementById("board-table");
  const move = MOVES[event.key];
  if (!table || !move) return;
  const cell = event.target.closest("#board-table td, #board-table th");
  if (!cell && event.target.closest("a, button")) return;
  const next = cell ? move(cell) : table.querySelector("tbody a");
  event.preventDefault();
  next?.focus();
  next?.scrollIntoView({ block: "nearest", inline: "nearest" });
});
