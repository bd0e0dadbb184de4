// ---- columns and rows -----------------------------------------------------------------------------------
const columns = data.columns, byName = new Map(), form = $("controls"), PAGE = 100, MOST_PANELS = 12;
const { colours: COLOURS, symbols: SYMBOLS, mark: MARK } = data.looks, DASHES = ["solid", "dash", "dot", "dashdot"];
let filters = {}, sorted = { name: "", falling: false }, first = 0, kept = [];
const titled = (column) => (column.unit ? `${column.label} [${column.unit}]` : column.label);
const shownValue = (column, i) => {
  const value = column.values[i];
  if (value === null || value === "") return "–";
  if (column.whole) return value.toLocaleString("en");
  return column.numeric ? three(value / column.factor) : String(value);
};
const distinct = (column, rows) => [...new Set(rows.map((i) => column.values[i]))].sort((a, b) => (typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b))));
const drawn = (column) => (value) => (column.numeric && value !== null ? value / column.factor : value);

// A filter of numbers: 8, >=8, <8, 8..64, in the unit of the heading; of words: a part.
function meets(column, i, text) {
  const value = column.values[i];
  if (!column.numeric) return String(value ?? "").toLowerCase().includes(text.toLowerCase());
  if (value === null) return false;
  const number = value / column.factor, span = text.split(".."), match = text.match(/^(>=|<=|>|<)\s*(-?[\d.]+)$/);
  if (span.length === 2) return number >= Number(span[0] || -Infinity) && number <= Number(span[1] || Infinity);
  if (match) { const than = Number(match[2]); return { ">=": number >= than, "<=": number <= than, ">": number > than, "<": number < than }[match[1]]; }
  return Math.abs(number - Number(text)) <= 1e-9 * Math.abs(number);
}
function filtered() {
  const active = Object.entries(filters).filter(([, text]) => text).map(([name, text]) => [byName.get(name), text]);
  kept = Array.from({ length: data.count }, (_, i) => i).filter((i) => active.every(([column, text]) => meets(column, i, text)));
  const column = byName.get(sorted.name);
  if (!column) return;
  const order = (a, b) => (column.numeric ? a - b : String(a).localeCompare(String(b))) * (sorted.falling ? -1 : 1);
  kept.sort((a, b) => { const [p, q] = [column.values[a], column.values[b]]; return (p === null) - (q === null) || (p === null ? 0 : order(p, q)); });
}

// ---- the picture ----------------------------------------------------------------------------------------
const choice = (name) => form.elements[name].value;
function usable(...names) { return kept.filter((i) => names.every((name) => byName.get(name).values[i] !== null)); }
// One row of several that share their places in the picture: the one with most samples a second, or all of them.
function taken(rows, keys) {
  if (choice("of") === "all") return rows;
  const best = new Map(), cost = byName.get("time_per_sample_s").values;
  for (const i of rows) {
    const key = keys.map((column) => column.values[i]).join("\n"), known = best.get(key);
    if (known === undefined || cost[i] < cost[known]) best.set(key, i);
  }
  return [...best.values()];
}
// Points that none beats in both: less of x, and the better y.
function frontOf(rows, x, y) {
  const sign = (column) => (column.more ? -1 : 1), value = (column, i) => sign(column) * column.values[i];
  let best = Infinity;
  return [...rows].sort((a, b) => value(x, a) - value(x, b) || value(y, a) - value(y, b)).filter((i) => value(y, i) < best && ((best = value(y, i)), true));
}
const about = (i) => columns.filter((column) => column.role !== "aside" && column.values[i] !== null && column.values[i] !== "").map((column) => `${column.label} ${shownValue(column, i)} ${column.unit}`).join("<br>");
function panelsOf(rows) {
  const column = byName.get(choice("facet"));
  if (!column) return [["", rows]];
  return distinct(column, rows).map((value) => [`${column.label} ${value === null ? "–" : value}`, rows.filter((i) => column.values[i] === value)]);
}
function traces(kind, rows, x, y, colour, axes, legend, tone) {
  const common = { ...axes, hovertemplate: "%{customdata}<extra></extra>" }, at = (column) => (i) => drawn(column)(column.values[i]);
  if (kind === "heat") {
    const side = colour || x, xs = distinct(x, rows), ys = colour ? distinct(side, rows) : [""], place = new Map(rows.map((i) => [`${x.values[i]}\n${colour ? side.values[i] : ""}`, i]));
    const cell = (get) => ys.map((b) => xs.map((a) => { const i = place.get(`${a}\n${b}`); return i === undefined ? null : get(i); }));
    return [{ ...common, type: "heatmap", x: xs.map(String), y: ys.map(String), z: cell((i) => tone(at(y)(i))), customdata: cell(about), coloraxis: "coloraxis", hoverongaps: false, text: cell((i) => shownValue(y, i)), texttemplate: xs.length * ys.length <= 120 ? "%{text}" : "", xgap: 1, ygap: 1 }];
  }
  const groups = colour ? distinct(colour, kept) : [null], out = [];
  groups.forEach((group, g) => {
    let mine = rows.filter((i) => !colour || colour.values[i] === group);
    if (kind === "lines") mine = [...mine].sort((a, b) => (x.numeric ? x.values[a] - x.values[b] : 0));
    const style = { color: COLOURS[g % COLOURS.length], symbol: SYMBOLS[g % SYMBOLS.length], size: 8, opacity: kind === "lines" ? 1 : 0.75 };
    if (mine.length) out.push({ ...common, type: "scatter", mode: kind === "lines" && choice("of") !== "all" ? "lines+markers" : "markers", x: mine.map(at(x)), y: mine.map(at(y)), customdata: mine.map(about), marker: style,
      line: { color: style.color, dash: DASHES[Math.floor(g / COLOURS.length) % DASHES.length], width: 2 }, name: group === null ? "points" : String(group), legendgroup: String(group), showlegend: Boolean(colour) && !legend.has(group) && Boolean(legend.add(group)) });
  });
  if (kind === "front") {
    const front = frontOf(rows, x, y);
    out.push({ ...common, type: "scatter", mode: "lines+markers", x: front.map(at(x)), y: front.map(at(y)), customdata: front.map(about), name: "Pareto front", legendgroup: "front", showlegend: !legend.has("front") && Boolean(legend.add("front")),
      line: { color: MARK, width: 2.5, shape: "hv" }, marker: { color: MARK, symbol: "diamond-open", size: 13, line: { width: 2 } } });
  }
  return out;
}
// Ticks of a logarithmic axis at 1, 2 and 5 times the powers of ten; finer ones over a short range, coarser over a long one.
function logTicks(values) {
  const low = values.reduce((a, b) => Math.min(a, b), Infinity), high = values.reduce((a, b) => Math.max(a, b), 0);
  const at = (digits) => {
    const ticks = [];
    for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power++) for (const digit of digits) ticks.push(Number(`${digit}e${power}`));
    return ticks.filter((tick) => tick >= low * 0.95 && tick <= high * 1.05);
  };
  const usual = at([1, 2, 5]), shown = usual.length < 3 ? at([1, 1.5, 2, 3, 4, 5, 6, 7, 8, 9]) : usual.length > 12 ? at([1]) : usual;
  return shown.length < 2 ? {} : { tickvals: shown, ticktext: shown.map((tick) => tick.toLocaleString("en", { maximumSignificantDigits: 2 })) };
}
const inLogs = (ticks) => (ticks.tickvals ? { ...ticks, tickvals: ticks.tickvals.map(Math.log10) } : {});
function drawPicture() {
  const kind = choice("draw"), x = byName.get(choice("x")), y = byName.get(choice("y")), colour = byName.get(choice("colour"));
  const rows = usable(y.name, ...(x.numeric ? [x.name] : [])), every = panelsOf(rows), panels = every.slice(0, MOST_PANELS);
  const across = Math.min(panels.length, Math.max(1, Math.floor($("picture").clientWidth / 380)), 3), down = Math.ceil(panels.length / across), all = [], legend = new Set(), layoutOf = {}, log = form.elements.log.checked;
  const deep = log && rows.every((i) => y.values[i] > 0), tone = deep ? Math.log10 : (value) => value;
  let drawnRows = 0;
  panels.forEach(([title, mine], at) => {
    const n = at ? String(at + 1) : "", column = at % across, line = Math.floor(at / across), keys = [x, ...(colour ? [colour] : [])];
    const part = taken(mine, keys);
    drawnRows += part.length;
    all.push(...traces(kind, part, x, y, colour, { xaxis: `x${n}`, yaxis: `y${n}` }, legend, tone));
    const wide = 1 / across, high = 1 / down, domain = [column * wide + (column ? 0.045 : 0), (column + 1) * wide - 0.005], up = [1 - (line + 1) * high + (line < down - 1 ? 0.09 : 0), 1 - line * high - 0.05];
    layoutOf[`xaxis${n}`] = { domain, anchor: `y${n}`, title: { text: titled(x) }, type: kind === "heat" || !x.numeric ? "category" : log && rows.every((i) => x.values[i] > 0) ? "log" : "linear", zeroline: false, automargin: true };
    layoutOf[`yaxis${n}`] = { domain: up, anchor: `x${n}`, title: column ? undefined : { standoff: 14, text: kind === "heat" ? (colour ? titled(colour) : "") : titled(y) }, showticklabels: kind !== "heat" || !column, type: kind === "heat" ? "category" : log && rows.every((i) => y.values[i] > 0) ? "log" : "linear", zeroline: false, automargin: true };
    for (const [axis, of] of [["xaxis", x], ["yaxis", y]]) if (layoutOf[`${axis}${n}`].type === "log") Object.assign(layoutOf[`${axis}${n}`], logTicks(part.map((i) => drawn(of)(of.values[i]))));
    if (layoutOf[`xaxis${n}`].type === "log" && distinct(x, rows).length <= 12) { const ticks = distinct(x, rows).map(drawn(x)); Object.assign(layoutOf[`xaxis${n}`], { tickvals: ticks, ticktext: ticks.map((value) => value.toLocaleString("en", { maximumSignificantDigits: 4 })) }); }
    if (title) (layoutOf.annotations ??= []).push({ text: title, x: (domain[0] + domain[1]) / 2, y: up[1], xref: "paper", yref: "paper", xanchor: "center", yanchor: "bottom", showarrow: false });
  });
  Plotly.react("picture", all, { ...layout({ height: down > 1 ? 340 * down : 460, margin: { l: 64, r: 16, t: 40, b: 48 } }), ...layoutOf, showlegend: kind !== "heat", legend: { orientation: "h", y: 1.04, yanchor: "bottom", x: 0 },
    coloraxis: { colorscale: "Cividis", reversescale: !y.more, colorbar: { title: { text: titled(y) }, thickness: 12, ...(deep ? inLogs(logTicks(rows.map((i) => drawn(y)(y.values[i])))) : {}) } } }, CONFIG);
  const cut = every.length > panels.length ? ` ${every.length - panels.length} more panels are not drawn: filter, or choose other panels.` : "";
  const left = data.count - rows.length, several = rows.length - drawnRows - every.slice(MOST_PANELS).reduce((sum, [, mine]) => sum + mine.length, 0);
  $("picture-title").textContent = `${y.label} over ${x.label}`;
  $("caption").textContent = `${drawnRows.toLocaleString("en")} of ${data.count.toLocaleString("en")} points drawn` + (several > 0 ? `; of several points at the same place only the one with most samples/s is drawn, ${several.toLocaleString("en")} are not` : "") +
    (left ? `; ${left.toLocaleString("en")} filtered out or without a value` : "") + (kind === "front" ? `; the front: no point has less ${x.label} and a better ${y.label}` : "") + `.${cut}`;
}

// ---- the table --------------------------------------------------------------------------------------------
// On a phone the first columns are those that one looks for: which strategy, and how fast it is.
const FIRST = ["strategy", "speedup", "samples_per_s", "expected_s"], narrow = matchMedia("(max-width: 600px)").matches;
const placeOf = (column) => (FIRST.includes(column.name) ? FIRST.indexOf(column.name) : FIRST.length);
const tableColumns = narrow ? [...columns].sort((a, b) => placeOf(a) - placeOf(b)) : columns;
function drawTable() {
  const body = document.querySelector("#points tbody"), rows = kept.slice(first, first + PAGE);
  body.replaceChildren(...rows.map((i) => {
    const row = document.createElement("tr");
    for (const column of tableColumns) {
      const cell = row.insertCell();
      cell.textContent = shownValue(column, i);
      if (!column.numeric) cell.className = column.name === "error" ? "word wrap" : "word";
    }
    return row;
  }));
  $("shown").textContent = kept.length ? `${(first + 1).toLocaleString("en")} to ${(first + rows.length).toLocaleString("en")} of ${kept.length.toLocaleString("en")} after filtering, of ${data.count.toLocaleString("en")}` : "No point passes the filters.";
  $("before").disabled = first === 0;
  $("after").disabled = first + PAGE >= kept.length;
}
function drawHead() {
  const head = document.querySelector("#points thead"), names = head.insertRow(), row = head.insertRow();
  row.className = "filters";
  for (const column of tableColumns) {
    const th = Object.assign(document.createElement("th"), { scope: "col", className: column.numeric ? "" : "word" }), button = Object.assign(document.createElement("button"), { type: "button", textContent: titled(column) });
    button.addEventListener("click", () => {
      sorted = { name: column.name, falling: sorted.name === column.name && !sorted.falling };
      names.querySelectorAll("th").forEach((other) => other.removeAttribute("aria-sort"));
      th.setAttribute("aria-sort", sorted.falling ? "descending" : "ascending");
      again();
    });
    th.append(button);
    names.append(th);
    const input = Object.assign(document.createElement("input"), { type: "search" }), cell = document.createElement("td");
    input.setAttribute("aria-label", `filter of ${column.label}`);
    input.addEventListener("input", () => { filters[column.name] = input.value.trim(); again(); });
    cell.append(input);
    row.append(cell);
  }
}
function again() { first = 0; filtered(); drawPicture(); drawTable(); }
function fillControls() {
  const option = (column) => new Option(titled(column), column.name), axes = columns.filter((column) => column.role === "axis"), values = columns.filter((column) => column.role === "value" && column.values.some((value) => value !== null));
  const numeric = [...axes.filter((column) => column.numeric), ...values], has = (name) => byName.has(name);
  form.elements.y.append(...values.map(option));
  form.elements.x.append(...[...axes, ...values].map(option));
  for (const name of ["colour", "facet"]) form.elements[name].append(new Option("–", ""), ...axes.map(option));
  form.elements.of.append(new Option("the one with most samples/s", "best"), new Option("all", "all"));
  if (values.some((column) => column.name === "samples_per_s")) form.elements.y.value = "samples_per_s";
  form.elements.x.value = has("devices") ? "devices" : (numeric[0] || axes[0] || values[0]).name;
  const words = axes.filter((column) => !column.numeric && column.name !== form.elements.x.value), wanted = ["strategy", "model"].filter((name) => words.some((column) => column.name === name));
  form.elements.colour.value = wanted[0] || words[0]?.name || "";
  form.elements.facet.value = wanted[1] || "";
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("input", (event) => {
    if (event.target.name === "draw" && choice("draw") === "front") { // time against cost, model by model
      form.elements.y.value = "time_per_sample_s";
      form.elements.x.value = byName.has("devices") ? "devices" : "device_hours_per_million_samples";
      form.elements.facet.value = byName.has("model") ? "model" : "";
    }
    drawPicture();
  });
}
async function start() {
  await Promise.all(columns.map(async (column) => { column.values = await unpack(column.values); byName.set(column.name, column); }));
  fillControls();
  drawHead();
  again();
  $("before").addEventListener("click", () => { first = Math.max(0, first - PAGE); drawTable(); });
  $("after").addEventListener("click", () => { first += PAGE; drawTable(); });
  $("clear").addEventListener("click", () => { filters = {}; document.querySelectorAll("#points .filters input").forEach((input) => { input.value = ""; }); again(); });
  document.body.dataset.ready = "yes";
}
start();
