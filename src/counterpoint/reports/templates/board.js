
"use strict";
// A click on the head of a column sorts its table: the best first, then the worst first. Cells
// without a number are last.
function valueOf(row, column) {
  const cell = row.cells[column];
  const shown = cell.querySelector(".value") || cell;
  const number = parseFloat(shown.textContent);
  return Number.isNaN(number) ? null : number;
}

function sortBy(head, column) {
  const table = head.closest("table"), body = table.tBodies[0];
  const numeric = !head.classList.contains("name");
  const lower = !numeric || head.textContent.includes("↓");
  const before = head.getAttribute("aria-sort");
  const order = before ? (before === "ascending" ? "descending" : "ascending") : lower ? "ascending" : "descending";
  const sign = order === "ascending" ? 1 : -1;
  const rows = [...body.rows];
  const key = row => numeric ? valueOf(row, column) : row.cells[column].textContent.trim().toLowerCase();
  const keys = new Map(rows.map(row => [row, key(row)]));
  rows.sort((a, b) => {
    const x = keys.get(a), y = keys.get(b);
    if (x === null || y === null) return (x === null) - (y === null);
    return numeric ? sign * (x - y) : sign * x.localeCompare(y);
  });
  for (const other of table.tHead.querySelectorAll("[aria-sort]")) other.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", order);
  body.append(...rows);
}

for (const table of document.querySelectorAll("table.sortable")) {
  [...table.tHead.rows[table.tHead.rows.length - 1].cells].forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    button.addEventListener("click", () => sortBy(head, column));
    head.append(button);
  });
}

// The first page: some benchmarks, with or without published models, and models by name.
const chosen = document.getElementById("choose");
if (chosen) {
  const table = document.querySelector("#table table");
  const heads = [...table.tHead.rows[0].querySelectorAll("th")];
  const families = heads.flatMap(head => Array(Number(head.dataset.columns)).fill(head.dataset.family));
  const has = (row, number) => row.cells[number + 1].querySelector(".value") !== null;
  const show = () => {
    const family = chosen.elements.family.value, published = chosen.elements.published.checked;
    const wanted = chosen.elements.find.value.trim().toLowerCase();
    const rows = [...table.tBodies[0].rows];
    let seen = families.map(name => family === "all" || name === family);
    for (const row of rows) {
      const any = seen.some((visible, number) => visible && has(row, number));
      const named = row.cells[0].textContent.toLowerCase().includes(wanted);
      row.hidden = !any || !named || (!published && row.classList.contains("published"));
    }
    // Columns that none of these models has are not shown.
    const left = rows.filter(row => !row.hidden);
    seen = seen.map((visible, number) => visible && left.some(row => has(row, number)));
    for (const row of [table.tHead.rows[1], ...rows])
      seen.forEach((visible, number) => { row.cells[number + 1].hidden = !visible; });
    let first = 0;
    for (const head of heads) {
      const count = Number(head.dataset.columns), mine = seen.slice(first, first + count);
      head.hidden = !mine.includes(true);
      head.colSpan = mine.filter(Boolean).length || 1;
      first += count;
    }
  };
  chosen.addEventListener("input", show);
  chosen.addEventListener("submit", event => event.preventDefault());
  chosen.hidden = false;
  show();
}
