// ---- one strategy of several at a time ---------------------------------------------------------------
const plot = (id, figure) => Plotly.react(id, figure.data, { ...figure.layout, hoverlabel: { align: "left" } }, CONFIG);

async function choose(index, show) {
  const strategy = data.strategies[index];
  document.querySelectorAll("[data-strategy]").forEach((part) => { part.hidden = Number(part.dataset.strategy) !== index; });
  document.querySelectorAll(".chosen").forEach((part) => { part.textContent = strategy.name; });
  await Promise.all([openTimeline(strategy), show(strategy)]);
  document.body.dataset.chosen = index;
}
// Draws what all strategies share, then the one chosen; show draws what a page has beside its timeline.
async function openStrategies(show) {
  for (const [id, figure] of Object.entries(data.figures)) plot(id, figure);
  const radios = [...document.querySelectorAll("input[name=strategy]")];
  radios.forEach((radio, i) => radio.addEventListener("change", () => choose(i, show)));
  await choose(Math.max(0, radios.findIndex((radio) => radio.checked)), show);
  document.body.dataset.ready = "yes";
}
