"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const $ = (id) => document.getElementById(id);
const CONFIG = { displaylogo: false, responsive: true, modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d"] };

{% include "numbers.js" %}
{% include "packed.js" %}
const time = (s) => figures(s, TIMES);
const bytes = (b) => figures(b, BYTES);
const axisUnit = (s) => TIMES.slice(0, 3).find(([, size]) => s >= size) || TIMES[2];
// A place in time, told apart from others nearby.
const moment = (s) => { const [name, size] = unitOf([s], TIMES); return `${(s / size).toLocaleString("en", { maximumSignificantDigits: 6 })} ${name}`; };

const signed = (code) => (code & 1 ? -(code + 1) / 2 : code / 2);
async function unpack({ type, data, steps }) {
  const packed = bytesIn(data);
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  const buffer = await new Response(stream).arrayBuffer();
  if (type === "json") return JSON.parse(new TextDecoder().decode(buffer));
  const values = new globalThis[type](buffer);
  if (!steps) return values;
  const sums = new Uint32Array(values.length); // differences of neighbours, as 0, -1, 1, -2, 2, ...
  for (let i = 0, sum = 0; i < values.length; i++) sums[i] = sum += signed(values[i]);
  return sums;
}
async function unpackAll(columns) {
  const keys = Object.keys(columns);
  const values = await Promise.all(keys.map((key) => unpack(columns[key])));
  return Object.fromEntries(keys.map((key, i) => [key, values[i]]));
}
const layout = (more) => ({
  template: "none", paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", showlegend: false,
  font: { family: "system-ui, sans-serif", size: 12 }, hoverlabel: { align: "left" }, ...more,
});
