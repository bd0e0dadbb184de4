"use strict";
const figures = JSON.parse(document.getElementById("data").textContent);
for (const [id, figure] of Object.entries(figures)) {
  Plotly.react(id, figure.data, { ...figure.layout, hoverlabel: { align: "left" } }, { responsive: true, displaylogo: false });
}
document.body.dataset.ready = "yes";
