"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
{% include "numbers.js" %}

// A figure in the page's looks; axes as given.
function plot(id, traces, layout) {
  Plotly.react(id, traces, {
    height: 400, margin: { l: 8, r: 16, t: 8, b: 8 }, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: "system-ui, sans-serif", size: 12.5 }, hoverlabel: { align: "left" }, showlegend: true,
    legend: { orientation: "h", y: 1.02, yanchor: "bottom", x: 0 }, ...layout,
    xaxis: { automargin: true, zeroline: false, ...layout.xaxis },
    yaxis: { automargin: true, zeroline: false, ...layout.yaxis },
  }, { displaylogo: false, responsive: true });
}

// Runs a figure's function with what its form chooses, now and whenever that changes.
function controlled(form, draw) {
  const run = () => draw(new FormData(form));
  form.addEventListener("input", run);
  form.addEventListener("submit", (event) => event.preventDefault());
  run();
}
