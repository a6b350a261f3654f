/* Sort a [data-sortable] table by any column; cells without a value go last. Fold rows marked [data-more-row]. */
function enhanceSortable(table) {
  const body = table.tBodies[0];
  const rows = [...body.rows];
  const heads = [...table.tHead.rows[0].cells];
  rows.forEach((row, index) => (row.dataset.place = index));

  function value(row, column) {
    const cell = row.cells[column];
    if (column === 0) return cell.querySelector(".row-name").textContent;
    return cell.dataset.value === undefined ? NaN : Number(cell.dataset.value);
  }

  function compare(column, sign) {
    return (a, b) => {
      const x = value(a, column);
      const y = value(b, column);
      const missing = Number.isNaN(x) - Number.isNaN(y);
      if (missing) return missing;
      const difference = typeof x === "string" ? x.localeCompare(y, "en", { numeric: true }) : x - y;
      return sign * difference || a.dataset.place - b.dataset.place;
    };
  }

  heads.forEach((head, column) => {
    head.setAttribute("aria-sort", "none");
    head.querySelector("button").addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      for (const other of heads) other.setAttribute("aria-sort", "none");
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      body.append(...[...rows].sort(compare(column, down ? -1 : 1)));
    });
  });
}

function enhanceFold(button) {
  const rows = [...document.querySelectorAll(`#${button.dataset.unfold} [data-more-row]`)];
  for (const row of rows) row.hidden = true;
  button.hidden = false;
  button.addEventListener("click", () => {
    for (const row of rows) row.hidden = false;
    button.hidden = true;
    rows[0].closest(".scroll").focus();
  });
}

document.querySelectorAll("[data-sortable]").forEach(enhanceSortable);
document.querySelectorAll("[data-unfold]").forEach(enhanceFold);
