"use strict";
// Tables: every column sorts; long tables have a filter and can be saved, and rows of one run are a line that opens.
// A row's data-run tells its run, data-more what else its line says; a heading's data-join tells how it shows a column.
(() => {
  const LONG = 12;
  const element = (tag, values, ...inside) => { const made = Object.assign(document.createElement(tag), values); made.append(...inside); return made; };
  const texts = (rows, column) => rows.map((row) => row.cells[column].textContent.trim());

  // The value by which a cell sorts; nothing for a cell without one, which comes last.
  const valueOf = (cell) => cell.dataset.value ?? (["–", ""].includes(cell.textContent.trim()) ? undefined : cell.textContent.trim());
  function sorted(rows, column, falling) {
    const numeric = rows.every((row) => [undefined, false].includes(valueOf(row.cells[column]) === undefined ? undefined : Number.isNaN(Number(valueOf(row.cells[column]).replaceAll(",", "").replace("−", "-")))));
    const number = (text) => Number(text.replaceAll(",", "").replace("−", "-"));
    const order = (a, b) => (numeric ? number(a) - number(b) : a.localeCompare(b, "en", { numeric: true })) * (falling ? -1 : 1);
    const key = (row) => valueOf(row.cells[column]);
    return [...rows].sort((a, b) => (key(a) === undefined) - (key(b) === undefined) || (key(a) === undefined ? 0 : order(key(a), key(b))));
  }
  function joined(rows, column, how) { // what the row of a run says in a column
    const all = how === "begins" ? rows.map((row) => row.cells[column].firstChild.textContent.trim()) : texts(rows, column), each = [...new Set(all)];
    if (each.length === 1 || how === "first") return all[0];
    if (how !== "sum") return each.length <= 3 ? each.join(", ") : `${each.length} kinds`;
    return all.reduce((total, text) => total + (Number(text.replaceAll(",", "")) || 0), 0).toLocaleString("en", { maximumSignificantDigits: 3 });
  }
  function runsOf(rows) {
    const runs = [];
    for (const row of rows.filter((each) => each.dataset.run !== undefined)) {
      if (runs.at(-1)?.at(-1) === row.previousElementSibling && row.dataset.run === runs.at(-1)?.[0].dataset.run) runs.at(-1).push(row); else runs.push([row]);
    }
    return runs;
  }
  const breaking = (name) => name.split(/(?<=\.)/).flatMap((part, i) => (i ? [element("wbr", {}), part] : [part])); // lines end after dots
  function headOf(run, heads) {
    const [first, last] = [texts(run, 0)[0], texts(run, 0).at(-1)], button = element("button", { type: "button", className: "opens" }, ...breaking(`${first} to ${last}`), element("small", {}, [run[0].dataset.more, `${run.length} rows`].filter(Boolean).join(": ")));
    const row = element("tr", { className: "run" });
    [...run[0].cells].forEach((cell, column) => {
      const copy = cell.cloneNode(true), text = joined(run, column, heads[column]?.dataset.join);
      if (!column) copy.replaceChildren(button); else if (copy.textContent.trim() !== text) { copy.textContent = text; copy.classList.toggle("wrap", copy.classList.contains("word")); }
      if (heads[column]?.dataset.join === "sum") copy.style.removeProperty("--share");
      row.append(copy);
    });
    const open = (on) => { button.setAttribute("aria-expanded", on); for (const each of run) each.hidden = !on; };
    button.addEventListener("click", () => open(button.getAttribute("aria-expanded") !== "true"));
    open(false);
    return { row, run, open };
  }
  function enhance(table) {
    const body = table.tBodies[0], rows = body ? [...body.rows] : [], heads = [...(table.tHead?.rows[0]?.cells ?? [])];
    if (rows.length < 3 || !heads.length || "own" in table.dataset) return;
    const runs = runsOf(rows).map((run) => headOf(run, heads));
    let by = -1, falling = false, part = "";
    const plain = () => {
      body.replaceChildren(...rows);
      for (const { row, run, open } of runs) { run[0].before(row); open(false); }
    };
    const count = element("span", { className: "quiet" });
    count.setAttribute("aria-live", "polite");
    const show = () => {
      if (by < 0 && !part) plain();
      else body.replaceChildren(...(by < 0 ? rows : sorted(rows, by, falling)));
      const kept = rows.filter((row) => row.textContent.toLowerCase().includes(part));
      if (by >= 0 || part) for (const row of rows) row.hidden = !row.textContent.toLowerCase().includes(part);
      count.textContent = part ? `${kept.length} of ${rows.length} rows` : "";
    };
    heads.forEach((head, column) => {
      let button = head.querySelector("button");
      if (!button) { button = element("button", { type: "button" }, ...head.childNodes); head.append(button); }
      button.addEventListener("click", () => { // rising, falling, and as it was
        if (by === column && falling) by = -1; else { falling = by === column; by = column; }
        for (const other of heads) other.removeAttribute("aria-sort");
        if (by >= 0) head.setAttribute("aria-sort", falling ? "descending" : "ascending");
        show();
      });
    });
    if (rows.length >= LONG && !("filtered" in table.dataset)) {
      const input = element("input", { type: "search", placeholder: "part of a row" });
      input.addEventListener("input", () => { part = input.value.trim().toLowerCase(); show(); });
      const save = element("button", { type: "button", title: "all rows, as a file for spreadsheets" }, "save as CSV");
      save.addEventListener("click", () => saved(table.id || "table", heads.map((head) => head.textContent), rows));
      table.before(element("div", { className: "tools narrow" }, element("label", {}, "Filter ", input), save, count));
    }
    if (runs.length) plain();
    const reach = () => { // a link to a row inside a run opens it
      const target = location.hash.length > 1 && document.getElementById(decodeURIComponent(location.hash.slice(1)));
      for (const { run, open } of runs) if (run.includes(target)) { open(true); target.scrollIntoView({ block: "center" }); }
    };
    window.addEventListener("hashchange", reach);
    reach();
  }
  function saved(name, heads, rows) { // every row in the table's order, folded or not, with numbers as they are shown
    const plain = (text) => (/^[−\d][\d,.]*$/.test(text) ? text.replaceAll(",", "").replace("−", "-") : text);
    const quoted = (text) => { const words = plain(text.trim().replace(/\s+/g, " ")); return /[",]/.test(words) ? `"${words.replaceAll('"', '""')}"` : words; };
    const lines = [heads, ...rows.map((row) => [...row.cells].map((cell) => cell.textContent))].map((cells) => cells.map(quoted).join(","));
    const link = element("a", { download: `${name}.csv`, href: URL.createObjectURL(new Blob([`${lines.join("\n")}\n`], { type: "text/csv" })) });
    link.click();
    URL.revokeObjectURL(link.href);
  }
  // A table that is wider than its box stands row by row, every cell below its heading, so that no column is cut off.
  function stacked(table) {
    const heads = [...table.tHead.rows[0].cells].map((head) => head.textContent.trim()), box = table.parentElement;
    for (const row of table.tBodies[0].rows) [...row.cells].forEach((cell, column) => { cell.dataset.head = heads[column]; });
    let width = 0;
    new ResizeObserver(() => {
      if (box.clientWidth === width) return;
      width = box.clientWidth;
      table.classList.remove("stacked");
      table.classList.toggle("stacked", table.scrollWidth > width);
    }).observe(box);
  }
  document.addEventListener("DOMContentLoaded", () => document.querySelectorAll("table[data-stacks]").forEach(stacked));
  document.addEventListener("DOMContentLoaded", () => document.querySelectorAll("main table").forEach(enhance));
})();
