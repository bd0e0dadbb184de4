"use strict";
{% include "packed.js" %}
// The library that draws is packed, so that a page is small; the head of the page is seen before it is unpacked.
(async () => {
  const packed = bytesIn(document.getElementById("plotly").textContent);
  const library = await new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
  const run = (text) => document.body.append(Object.assign(document.createElement("script"), { textContent: text }));
  run(library);
  const react = Plotly.react;
  Plotly.react = (place, traces, layout, config) => {
    const box = typeof place === "string" ? document.getElementById(place) : place;
    const fitted = shortened(fitting(layout, box.clientWidth), traces, box.clientWidth);
    return react(box, apart(traces), labelled(fitted, traces, box.clientWidth), config);
  };
  run(document.getElementById("drawn").textContent);
})();
// Lines of equal series lie on each other: the later ones are dashed, with open and larger markers around the first.
function apart(traces) {
  const seen = new Map();
  return traces.map((trace) => {
    if (!trace.mode?.includes("lines") || !trace.name || !trace.y?.length) return trace;
    const points = `${trace.xaxis ?? ""} ${trace.yaxis ?? ""} ` + Array.from(trace.y, (y, i) => `${trace.x?.[i]}:${typeof y === "number" ? y.toPrecision(3) : y}`).join();
    const below = seen.get(points) ?? 0;
    seen.set(points, below + 1);
    if (!below) return trace;
    const marker = { ...trace.marker, size: (trace.marker?.size ?? 6) + 6 * below, symbol: `${String(trace.marker?.symbol ?? "circle").replace(/-open$/, "")}-open`, line: { width: 2 } };
    return { ...trace, line: { ...trace.line, dash: below % 2 ? "dash" : "dot" }, marker };
  });
}
// Words to the right of bars stay inside: the axis goes on until they have room.
function labelled(layout, traces, width) {
  const axis = layout?.xaxis, words = (layout?.annotations ?? []).filter((each) => each.xanchor === "left" && typeof each.x === "number" && !each.xref);
  if (!axis?.range || axis.type === "log" || !words.length) return layout;
  const names = traces.flatMap((trace) => (Array.isArray(trace.y) ? trace.y : [])).filter((name) => typeof name === "string");
  const plot = Math.max(80, width - 40 - 8 * Math.max(0, ...names.map((name) => name.length))), [low, high] = axis.range;
  const ends = words.map((each) => low + ((each.x - low) * plot) / Math.max(plot * 0.3, plot - (each.xshift ?? 0) - 8 * each.text.replace(/<[^>]*>/g, "").length));
  return { ...layout, xaxis: { ...axis, range: [low, Math.max(high, ...ends)] } };
}
// Names beside bars take at most two fifths of the width, in as many lines as find room; of longer ones both ends are kept.
function shortened(layout, traces, width) {
  const names = [...new Set(traces.flatMap((trace) => (Array.isArray(trace.y) ? trace.y : [])))].filter((name) => typeof name === "string");
  const most = Math.max(8, Math.floor((0.4 * width) / 7)), long = names.some((name) => name.length > most);
  const fits = (text) => text.split("<br>").every((line) => line.length <= most);
  if (!long || (layout?.yaxis?.tickvals && (layout.yaxis.ticktext ?? []).every(fits))) return layout;
  const lines = Math.max(1, Math.floor((((layout?.height ?? 400) - 160) / names.length) / 17));
  return { ...layout, yaxis: { ...layout.yaxis, tickvals: names, ticktext: names.map((name) => inLines(name, most, lines)) } };
}
function inLines(name, most, lines) {
  const written = [""], room = lines * most;
  const whole = (text) => text.split(" ").flatMap((word) => word.match(new RegExp(`.{1,${most}}`, "g")) ?? []);
  const fill = (text) => { written.splice(0, written.length, ""); for (const word of whole(text)) { const last = written.length - 1; if (!written[last]) written[last] = word; else if (`${written[last]} ${word}`.length <= most) written[last] += ` ${word}`; else written.push(word); } };
  fill(name);
  for (let kept = room; written.length > lines; kept -= 2) fill(`${name.slice(0, Math.ceil(kept / 2) - 1)}…${name.slice(name.length - Math.floor(kept / 2))}`);
  return written.join("<br>");
}
// Numbers of an axis keep apart in narrow panels: those that find no room are left out.
function fitting(layout, width) {
  const changed = { ...layout }, away = { ticks: "outside", ticklen: 5, tickcolor: "rgba(0,0,0,0)" }; // numbers keep off the corner
  for (const [key, axis] of Object.entries(layout ?? {})) if (/^[xy]axis\d*$/.test(key)) layout = { ...layout, [key]: changed[key] = { ...away, ...axis } };
  for (let [key, axis] of Object.entries(layout ?? {})) {
    if (!/^xaxis\d*$/.test(key) || axis?.type === "category" || axis?.type === "multicategory") continue;
    const [from, to] = axis.domain ?? [0, 1], room = Math.max(60, (width - 70) * (to - from)), title = axis.title?.text ?? axis.title;
    if (typeof title === "string" && title.length * 7.5 > room * 0.75 && !title.includes("<br>") && title.includes(" ")) {
      const at = title.indexOf(" ", title.length / 2 - 4) >= 0 ? title.indexOf(" ", title.length / 2 - 4) : title.lastIndexOf(" ");
      axis = changed[key] = { ...axis, title: { ...(axis.title?.text ? axis.title : {}), text: `${title.slice(0, at)}<br>${title.slice(at + 1)}` } };
    }
    if (!axis.tickvals) { if (!axis.dtick && !axis.nticks) changed[key] = { ...axis, nticks: Math.max(2, Math.floor(room / 70)) }; continue; }
    const words = axis.ticktext ?? axis.tickvals.map(String), place = axis.type === "log" ? Math.log : (value) => value, at = axis.tickvals.map(place);
    const low = Math.min(...at), scale = (room * 0.9) / Math.max(Math.max(...at) - low, 1e-12), kept = [];
    const wide = (i) => 7 * Math.max(...String(words[i]).split("<br>").map((line) => line.length));
    at.forEach((value, i) => { const last = kept.at(-1); if (last === undefined || (value - at[last]) * scale > (wide(i) + wide(last)) / 2 + 6) kept.push(i); });
    changed[key] = { ...axis, tickvals: kept.map((i) => axis.tickvals[i]), ticktext: kept.map((i) => words[i]), tickangle: axis.tickangle ?? 0 };
  }
  for (const [key, axis] of Object.entries(layout ?? {})) // 1, 2 and 5 of every power of ten
    if (/^[xy]axis\d*$/.test(key) && axis?.type === "log" && !axis.tickvals && !axis.dtick) changed[key] = { ...changed[key], nticks: undefined, dtick: "D2" };
  for (const [key, axis] of Object.entries(layout ?? {})) { // lines of words, at most one in 16 pixels
    if (!/^yaxis\d*$/.test(key) || axis?.type !== "log" || !axis.tickvals) continue;
    const [from, to] = axis.domain ?? [0, 1], at = axis.tickvals.map(Math.log), span = Math.max(Math.max(...at) - Math.min(...at), 1e-12), kept = [];
    const scale = ((layout.height ?? 400) - 160) * (to - from) / span;
    at.forEach((value, i) => { if (!kept.length || (value - at[kept.at(-1)]) * scale > 16) kept.push(i); });
    changed[key] = { ...axis, tickvals: kept.map((i) => axis.tickvals[i]), ...(axis.ticktext ? { ticktext: kept.map((i) => axis.ticktext[i]) } : {}) };
  }
  return changed;
}
