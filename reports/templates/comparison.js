// ---- links ---------------------------------------------------------------------------------------
let links = null;

async function openLinks(strategy) {
  links = strategy.use ??= await unpackAll(strategy.links);
  drawLinks();
}
// Rows of the picture: classes of links, or links with those of their class that are used alike.
function linkRows() {
  const { names, classes, share, moved_bytes, alike, edges_s } = links, bins = edges_s.length - 1, wanted = $("links-filter").value.toLowerCase(), whole = $("links-count").value === "classes";
  const hash = (i) => { let sum = 0; for (let k = i * bins; k < (i + 1) * bins; k++) sum = (sum * 31 + share[k]) % 1e15; return sum; };
  const groups = new Map();
  names.forEach((name, i) => {
    if (!`${name} ${classes[i]}`.toLowerCase().includes(wanted)) return;
    const key = whole ? classes[i] : `${classes[i]} ${moved_bytes[i].toPrecision(9)} ${hash(i)}`;
    if (groups.has(key)) groups.get(key).push(i); else groups.set(key, [i]);
  });
  return [...groups.values()].map((of) => {
    const mean = new Float64Array(bins), count = of.reduce((sum, i) => sum + alike[i], 0);
    for (const i of of) for (let k = 0; k < bins; k++) mean[k] += share[i * bins + k] / 100 * alike[i] / count;
    const use = mean.reduce((sum, part) => sum + part, 0) / bins, moved = of.reduce((sum, i) => sum + moved_bytes[i] * alike[i], 0) / count;
    const name = whole ? `${classes[of[0]]} × ${count}` : names[of[0]] + (count > 1 ? ` and ${count - 1} alike` : "");
    return { name, mean, use, moved, count };
  }).sort((a, b) => b.use - a.use);
}
function drawLinks() {
  const { alike, edges_s } = links, [unit, size] = axisUnit(edges_s.at(-1)), found = linkRows(), most = Number($("links-count").value) || Infinity;
  const shown = found.slice(0, most), bins = edges_s.length - 1, words = shown.map((row) => `${row.name}: ${row.use.toFixed(1)} %`);
  const height = Math.max(160, shown.length * 19 + 70);
  const [byteName, byteSize] = unitOf(shown.map((row) => row.moved), BYTES);
  const at = shown.map((_, i) => i), narrow = $("links").clientWidth < 600;
  Plotly.react("links", [
    { type: "heatmap", z: shown.map((row) => Array.from(row.mean)), ygap: 2,
      x: Array.from(edges_s, (s) => s / size), y: at, zmin: 0, zmax: 100, text: shown.map((row) => new Array(bins).fill(row.name)),
      colorscale: [[0, "rgba(226,113,29,0.04)"], [1, "rgba(226,113,29,1)"]],
      showscale: !narrow, colorbar: { title: { text: "in use" }, ticksuffix: " %", thickness: 10, len: Math.min(1, 220 / height), y: 1, yanchor: "top" },
      hovertemplate: `%{text}<br>%{x:.4~g} ${unit}: %{z:.1f} % in use<extra></extra>` },
    { type: "bar", orientation: "h", xaxis: "x2", y: at, x: shown.map((row) => row.moved / byteSize), marker: { color: "{{ palette.MOVED }}" },
      customdata: shown.map((row) => `${row.name}<br>${row.count > 1 ? "each moves" : "moves"} ${bytes(row.moved)}`), hovertemplate: "%{customdata}<extra></extra>" },
  ], layout({
    height, bargap: 0.3, margin: { l: 8, r: 12, t: 6, b: 44 },
    xaxis: { domain: [0, narrow ? 0.62 : 0.8], nticks: narrow ? 3 : 10, title: { text: `time [${unit}]` }, zeroline: false, showgrid: false },
    xaxis2: { domain: [narrow ? 0.68 : 0.83, 1], title: { text: narrow ? `[${byteName}]` : `moved [${byteName}]` }, zeroline: false, nticks: narrow ? 2 : 4 },
    font: { family: "system-ui, sans-serif", size: narrow ? 9 : 12 },
    yaxis: { range: [shown.length - 0.5, -0.5], tickvals: at, ticktext: words, zeroline: false, showgrid: false, automargin: true },
  }), CONFIG);
  $("links-status").textContent = `${shown.reduce((sum, row) => sum + row.count, 0)} of ${alike.reduce((sum, count) => sum + count, 0)} links in ${shown.length} row${shown.length === 1 ? "" : "s"}, busiest first`;
}

openStrategies((strategy) => {
  plot("memory", strategy.memory);
  return openLinks(strategy);
});
$("links-count").addEventListener("change", drawLinks);
$("links-filter").addEventListener("input", drawLinks);
