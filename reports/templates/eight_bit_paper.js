plot("scatter", data.scatter.data, data.scatter.layout);
const at = (...key) => data.rows.filter((row) => key.every((word, i) => word === null || row.key[i] === word));
const hover = (row) => `<b>${row.text}</b><br>printed ${three(row.printed)} ${row.unit}` +
  `<br>${row.way} ${three(row.ours)} ${row.unit} (${row.difference >= 0 ? "+" : ""}${three(100 * row.difference)} %)`;

// What is printed, then every way, as traces over x.
function waysOf(rows, x, make) {
  const ways = [...new Set(rows.map((row) => row.way))];
  const printed = rows.filter((row) => row.way === ways[0]);
  return [[data.printed, printed, printed.map((row) => row.printed)],
    ...ways.map((way) => rows.filter((row) => row.way === way)).map((own) => [own[0].way, own, own.map((row) => row.ours)]),
  ].map(([name, own, y]) => make(name, own.map(x), y, own.map((row) => (name === data.printed
    ? `<b>${row.text}</b><br>printed ${three(row.printed)} ${row.unit}` : hover(row)))));
}

function line(name, x, y, text) {
  const { colour, symbol, dash } = data.looks[name];
  return { x, y, text, name, mode: "lines+markers", hovertemplate: "%{text}<extra></extra>",
    line: { color: colour, dash, width: 2 }, marker: { color: colour, symbol, size: 9, line: { color: colour, width: 2 } } };
}

function bar(name, x, y, text) {
  return { x, y, text, name, type: "bar", textposition: "none", hovertemplate: "%{text}<extra></extra>",
    marker: { color: data.looks[name].colour } };
}

const subBatch = (rows) => ({ type: "log", title: { text: "sub-batch" },
  tickvals: [...new Set(rows.map((row) => Number(row.key[1])))], ticktext: [...new Set(rows.map((row) => row.key[1]))] });

controlled(document.querySelector("[data-figure=many]"), (form) => {
  const rows = at("speedup", null, form.get("bits"), form.get("kernels"));
  plot("many", waysOf(rows, (row) => Number(row.key[1]), line), {
    xaxis: subBatch(rows), yaxis: { title: { text: "speedup" }, rangemode: "tozero" } });
});
controlled(document.querySelector("[data-figure=passes]"), (form) => {
  const quantity = form.get("quantity"), rows = at(quantity, null, quantity === "forward" ? null : form.get("bits"));
  plot("passes", waysOf(rows, (row) => Number(row.key[1]), line), {
    xaxis: subBatch(rows), yaxis: { type: "log", title: { text: "time [ms]" } } });
});
const NODES = { 32: "32 bits", 8: "8 bits", convnet2: "32 bits, convnet2" };
plot("four", waysOf(at("node"), (row) => NODES[row.key[1]], bar), {
  barmode: "group", xaxis: {}, yaxis: { title: { text: "speedup" }, rangemode: "tozero" } });
const errors = document.querySelector("[data-figure=errors]");
if (errors) controlled(errors, (form) => {
  const what = form.get("what"), rows = at("error", what);
  const make = (name, x, y, text) => bar(name, [x.map((place) => place[0]), x.map((place) => place[1])], y, text);
  plot("errors", waysOf(rows, (row) => [row.text.split(", ").slice(0, -2).join(", "), row.key[3]], make), {
    barmode: "group", xaxis: {},
    yaxis: what === "relative" ? { title: { text: "relative error [%]" }, rangemode: "tozero" }
      : { title: { text: "absolute error" }, type: "log" } });
});

document.getElementById("table").addEventListener("input", (event) => {
  for (const row of document.querySelectorAll("#rows tbody tr")) row.hidden = event.target.value !== "" && row.dataset.table !== event.target.value;
});
document.body.dataset.ready = "yes";
