const percent = (values) => values.map((value) => 100 * value);
const faint = (colour) => `${colour}26`;

// The mean over the seeds and, on request, the band from the lowest to the highest.
function curves(cases, what, scale, band) {
  return cases.flatMap(({ type, [what]: { mean, low, high } }) => {
    const { colour, dash } = data.looks[type], x = mean.map((_, epoch) => epoch + 1);
    const line = { x, y: scale(mean), name: type, legendgroup: type, mode: "lines", line: { color: colour, dash, width: 2 },
      hovertemplate: `<b>${type}</b>, epoch %{x}<br>%{y:.4g}<extra></extra>` };
    if (!band) return [line];
    return [{ x: [...x, ...[...x].reverse()], y: scale([...high, ...[...low].reverse()]), legendgroup: type, fill: "toself",
      fillcolor: faint(colour), line: { width: 0 }, mode: "lines", hoverinfo: "skip", showlegend: false }, line];
  });
}

function intervals(cases, what) {
  return cases.map((each) => {
    const [mean, low, high] = percent(each[what]), { colour } = data.looks[each.type];
    return { x: [each.type], y: [mean], name: each.type, mode: "markers", showlegend: false,
      marker: { color: colour, size: 10, symbol: "diamond" },
      error_y: { type: "data", symmetric: false, array: [high - mean], arrayminus: [mean - low], color: colour, thickness: 2 },
      hovertemplate: `<b>${each.type}</b><br>${mean.toFixed(2)} (${low.toFixed(2)} to ${high.toFixed(2)})<extra></extra>` };
  });
}

const everySeed = (cases) => cases.map((each) => ({ x: each.last.map(() => each.type), y: percent(each.last), mode: "markers",
  showlegend: false, marker: { color: data.looks[each.type].colour, size: 6, opacity: 0.45 },
  text: each.last.map((_, seed) => `seed ${seed}`), hovertemplate: `<b>${each.type}</b>, %{text}<br>%{y:.2f}<extra></extra>` }));

controlled(document.getElementById("controls"), (form) => {
  const mode = form.get("mode"), types = form.getAll("type");
  const own = data.cases.filter((each) => each.mode === mode), cases = own.filter((each) => types.includes(each.type));
  const epochs = { title: { text: "epoch" }, dtick: Math.ceil(own[0].losses.mean.length / 12) };
  const [, low, high] = percent(own.find((each) => each.type === data.plain).interval);
  plot("losses", curves(cases, "losses", (values) => values, true), {
    xaxis: epochs, yaxis: { type: "log", title: { text: "training loss" } } });
  plot("accuracies", curves(cases, "accuracies", percent, false), {
    xaxis: epochs, yaxis: { title: { text: "accuracy [%]" } } });
  plot("last", [...everySeed(cases), ...intervals(cases, "interval")], {
    yaxis: { title: { text: "accuracy [%]" } }, shapes: [{ type: "rect", xref: "paper", x0: 0, x1: 1, y0: low, y1: high,
      fillcolor: faint(data.looks[data.plain].colour), line: { width: 0 }, layer: "below" }] });
  plot("difference", intervals(cases.filter((each) => each.type !== data.plain), "difference"), {
    yaxis: { title: { text: "difference from float32 [points]" }, zeroline: true } });
});
document.body.dataset.ready = "yes";
