// Sorts the rows of a table by a column's data-value; cells without one come last.
function sortable(table) {
  const body = table.tBodies[0];
  table.querySelectorAll("thead button").forEach((button, column) => button.addEventListener("click", () => {
    const head = button.closest("th"), falling = head.getAttribute("aria-sort") === "ascending";
    for (const other of head.parentElement.children) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", falling ? "descending" : "ascending");
    const value = (row) => row.cells[column].dataset.value, empty = (row) => value(row) === undefined;
    const order = (a, b) => (Number.isNaN(Number(a)) ? a.localeCompare(b) : Number(a) - Number(b)) * (falling ? -1 : 1);
    body.replaceChildren(...[...body.rows].sort((a, b) =>
      empty(a) - empty(b) || (empty(a) ? 0 : order(value(a), value(b)))));
  }));
}
