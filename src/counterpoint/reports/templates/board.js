
"use strict";
// A click on the head of a column sorts its table: the best first, then the worst first. Cells
// without a number are last, and chance stays at the end.
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
  const last = rows.filter(row => row.classList.contains("chance"));
  const rest = rows.filter(row => !row.classList.contains("chance"));
  const key = row => numeric ? valueOf(row, column) : row.cells[column].textContent.trim().toLowerCase();
  const keys = new Map(rest.map(row => [row, key(row)]));
  rest.sort((a, b) => {
    const x = keys.get(a), y = keys.get(b);
    if (x === null || y === null) return (x === null) - (y === null);
    return numeric ? sign * (x - y) : sign * x.localeCompare(y);
  });
  for (const other of table.tHead.querySelectorAll("[aria-sort]")) other.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", order);
  body.append(...rest, ...last);
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
  const families = [];
  for (const head of table.tHead.rows[0].querySelectorAll("th"))
    for (let n = 0; n < head.colSpan; n++) families.push(head.dataset.family);
  const show = () => {
    const family = chosen.elements.family.value, published = chosen.elements.published.checked;
    const wanted = chosen.elements.find.value.trim().toLowerCase();
    const seen = families.map(name => family === "all" || name === family);
    for (const head of table.tHead.rows[0].querySelectorAll("th"))
      head.hidden = family !== "all" && head.dataset.family !== family;
    for (const row of table.rows) {
      if (row === table.tHead.rows[0]) continue;
      seen.forEach((visible, number) => { row.cells[number + 1].hidden = !visible; });
      if (row.parentNode === table.tHead || row.classList.contains("chance")) continue;
      const any = seen.some((visible, number) => visible && row.cells[number + 1].querySelector(".value"));
      const named = row.cells[0].textContent.toLowerCase().includes(wanted);
      row.hidden = !any || !named || (!published && row.classList.contains("published"));
    }
  };
  chosen.addEventListener("input", show);
  chosen.addEventListener("submit", event => event.preventDefault());
  chosen.hidden = false;
  show();
}
