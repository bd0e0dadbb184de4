// ---- links ---------------------------------------------------------------------------------------
let links = null;

async function openLinks(strategy) {
  links = strategy.use ??= await unpackAll(strategy.links);
  drawLinks();
}
function drawLinks() {
  const { names, edges_s, share, moved_bytes } = links, bins = edges_s.length - 1, [unit, size] = axisUnit(edges_s.at(-1));
  const wanted = $("links-filter").value.toLowerCase();
  const found = names.map((_, i) => i).filter((i) => names[i].toLowerCase().includes(wanted)).sort((a, b) => moved_bytes[b] - moved_bytes[a]);
  const shown = found.slice(0, Number($("links-count").value)), words = shown.map((i) => names[i]);
  const height = Math.max(160, shown.length * 19 + 70);
  const [byteName, byteSize] = [["TB", 1e12], ["GB", 1e9], ["MB", 1e6], ["kB", 1e3], ["B", 1]].find(([, s]) => moved_bytes[shown[0]] >= s) || ["B", 1];
  const at = shown.map((_, i) => i), narrow = $("links").clientWidth < 600;
  Plotly.react("links", [
    { type: "heatmap", z: shown.map((i) => Array.from(share.subarray(i * bins, (i + 1) * bins), (part) => part / 100)), ygap: 2,
      x: Array.from(edges_s, (s) => s / size), y: at, zmin: 0, zmax: 100, text: shown.map((i) => new Array(bins).fill(names[i])),
      colorscale: [[0, "rgba(226,113,29,0.04)"], [1, "rgba(226,113,29,1)"]],
      showscale: !narrow, colorbar: { title: { text: "in use" }, ticksuffix: " %", thickness: 10, len: Math.min(1, 220 / height), y: 1, yanchor: "top" },
      hovertemplate: `%{text}<br>%{x:.4~g} ${unit}: %{z:.1f} % in use<extra></extra>` },
    { type: "bar", orientation: "h", xaxis: "x2", y: at, x: shown.map((i) => moved_bytes[i] / byteSize), marker: { color: "{{ palette.MOVED }}" },
      customdata: shown.map((i) => `${names[i]}<br>moves ${bytes(moved_bytes[i])}`), hovertemplate: "%{customdata}<extra></extra>" },
  ], layout({
    height, bargap: 0.3, margin: { l: 8, r: 12, t: 6, b: 44 },
    xaxis: { domain: [0, narrow ? 0.62 : 0.8], nticks: narrow ? 3 : 10, title: { text: `time [${unit}]` }, zeroline: false, showgrid: false },
    xaxis2: { domain: [narrow ? 0.68 : 0.83, 1], title: { text: narrow ? `[${byteName}]` : `moved [${byteName}]` }, zeroline: false, nticks: narrow ? 2 : 4 },
    font: { family: "system-ui, sans-serif", size: narrow ? 9 : 12 },
    yaxis: { range: [shown.length - 0.5, -0.5], tickvals: at, ticktext: words, zeroline: false, showgrid: false, automargin: true },
  }), CONFIG);
  $("links-status").textContent = `${shown.length} of ${names.length} links shown, most bytes first`;
}

openStrategies((strategy) => {
  plot("memory", strategy.memory);
  return openLinks(strategy);
});
$("links-count").addEventListener("change", drawLinks);
$("links-filter").addEventListener("input", drawLinks);
