"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const controls = document.getElementById("controls");
const AXES = { link_speed: "link speed", sub_batches: "sub-batches", devices: "devices" };
const VALUES = { speedup: "speedup over one device", gain: "faster than float32 [%]", iteration_s: "iteration [ms]" };
const BEST = 0;
{% include "numbers.js" %}
const speed = (factor) => {
  const bytes = factor * data.link.bytes_per_s;
  return bytes >= 1e9 ? `${three(bytes * 1e-9)} GB/s` : `${three(bytes * 1e-6)} MB/s`;
};

// The point of a type at a place; with BEST the fastest of all sub-batches.
function pointAt(type, place) {
  const found = data.points.filter((point) => point.type === type && point.devices === place.devices &&
    point.link_speed === place.link_speed && (place.sub_batches === BEST || point.sub_batches === place.sub_batches));
  return found.reduce((best, point) => (best && best.iteration_s <= point.iteration_s ? best : point), null);
}

function chosen() {
  const form = new FormData(controls);
  const fixed = Object.fromEntries(Object.keys(AXES).map((name) => [name, Number(form.get(name))]));
  return { axis: form.get("axis"), value: form.get("value"), types: form.getAll("type"), fixed };
}

function curve(type, { axis, value, fixed }) {
  const x = [], y = [], hover = [];
  for (const at of data.axes[axis]) {
    const place = { ...fixed, [axis]: at };
    const point = pointAt(type, place), plain = pointAt("float32", place);
    if (!point || (value === "gain" && !plain)) continue;
    const gain = plain ? 100 * (plain.iteration_s / point.iteration_s - 1) : NaN;
    x.push(at);
    y.push(value === "gain" ? gain : value === "speedup" ? point.speedup : 1e3 * point.iteration_s);
    hover.push(`<b>${type}</b>, ${point.sub_batches} sub-batch${point.sub_batches > 1 ? "es" : ""}<br>` +
      `${point.devices} devices, ${data.link.name} ${speed(point.link_speed)}<br>` +
      `iteration ${figures(point.iteration_s, TIMES)}, speedup ${three(point.speedup)}` +
      (Number.isFinite(gain) && type !== "float32" ? `<br>${gain >= 0 ? "+" : ""}${gain.toFixed(2)} % beside float32` : ""));
  }
  const { colour, symbol, dash } = data.looks[type];
  return { x, y, text: hover, name: type, mode: "lines+markers", hovertemplate: "%{text}<extra></extra>",
    line: { color: colour, dash, width: 2 }, marker: { color: colour, symbol, size: 9 } };
}

function thresholds({ axis, types, fixed }) {
  const here = data.crossings.filter((each) => each.axis === axis && types.includes(each.type) &&
    Object.keys(AXES).every((name) => name === axis || each[name] === fixed[name]));
  return here.flatMap((each) => each.thresholds.map((at, i) =>
    ({ type: each.type, at, between: each.between[i], starts: each.pays_at_low === (i % 2 === 1) })));
}

function draw() {
  const choice = chosen(), { axis, value, fixed } = choice;
  for (const label of controls.querySelectorAll("[data-fixed]")) label.hidden = label.dataset.fixed === axis;
  const crossed = thresholds(choice), ticks = data.axes[axis];
  const shapes = crossed.map(({ type, at }) => ({ type: "line", x0: at, x1: at, yref: "paper", y0: 0, y1: 1,
    line: { color: data.looks[type].colour, width: 1.5, dash: "dashdot" } }));
  const y = { automargin: true, zeroline: value === "gain", title: { text: VALUES[value] } };
  if (value !== "gain") y.rangemode = "tozero";
  Plotly.react("curve", choice.types.map((type) => curve(type, choice)), {
    height: 440, margin: { l: 8, r: 16, t: 8, b: 8 }, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: "system-ui, sans-serif", size: 12.5 }, hoverlabel: { align: "left" }, showlegend: true, shapes,
    legend: { orientation: "h", y: 1.02, yanchor: "bottom", x: 0 },
    xaxis: { type: "log", automargin: true, zeroline: false, tickvals: ticks,
      ticktext: ticks.map((at) => (axis === "link_speed" ? `${at}×<br>${speed(at)}` : String(at))),
      title: { text: axis === "link_speed" ? `speed of ${data.link.name}` : AXES[axis] } },
    yaxis: y,
  }, { displaylogo: false, responsive: true });
  const place = Object.keys(AXES).filter((name) => name !== axis).map((name) =>
    name === "link_speed" ? `links at ${speed(fixed[name])}` : name === "devices" ? `${fixed[name]} devices` :
      fixed[name] === BEST ? "best sub-batches of each" : `${fixed[name]} sub-batches`);
  document.getElementById("curve-title").textContent = `Over ${AXES[axis]}: ${place.join(", ")}`;
  document.getElementById("caption").textContent = crossed.length
    ? `Vertical lines: link speeds or counts at which a type starts or stops to pay: ${crossed.map(({ type, at, between, starts }) =>
      `${type} ${starts ? "starts" : "stops"} ${axis === "link_speed" ? `at ${three(at)}×` : `between ${between.join(" and ")}`}`).join(", ")}.`
    : "No type starts or stops to pay within this range.";
}

controls.addEventListener("input", draw);
controls.addEventListener("submit", (event) => event.preventDefault());
draw();
document.body.dataset.ready = "yes";
