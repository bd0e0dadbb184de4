// ---- drawing ------------------------------------------------------------------------------------------
// v: rows shown with their tops (in weights), the window in ticks and weights, and the canvas.
const v = { rows: [], tops: [], total: 1, x: [0, 1], y: [0, 1], matches: null, picked: -1, path: true, open: new Set(), openAll: false };
const AXIS = 26;
let GUTTER = 168; // room for the labels of rows
function resolved(name) { // light-dark() is resolved by a property that is a colour
  const probe = Object.assign(document.createElement("i"), { hidden: true });
  probe.style.color = `var(${name})`;
  document.body.append(probe);
  const value = getComputedStyle(probe).color;
  probe.remove();
  return value;
}
function readColours() {
  for (const name of ["ink", "quiet", "line", "surface", "ground", "mark", "transfer", "accent"]) v[name] = resolved(`--${name}`);
  v.rgb = m.kinds.map((kind) => rgbOf(m.colours[kind]));
  v.linkRgb = rgbOf(v.transfer);
}
function sized(canvas) {
  const ratio = window.devicePixelRatio || 1, width = canvas.clientWidth, height = canvas.clientHeight;
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
  }
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  return [context, width, height];
}
const plotWidth = () => $("picture").clientWidth - GUTTER, plotHeight = () => $("picture").clientHeight - AXIS;
const toX = (tick) => GUTTER + ((tick - v.x[0]) / (v.x[1] - v.x[0])) * plotWidth();
const toTick = (px) => v.x[0] + ((px - GUTTER) / plotWidth()) * (v.x[1] - v.x[0]);
const toY = (weight) => ((weight - v.y[0]) / (v.y[1] - v.y[0])) * plotHeight();
const toWeight = (px) => v.y[0] + (px / plotHeight()) * (v.y[1] - v.y[0]);
function rowAt(weight) {
  let low = 0, high = v.rows.length - 1;
  while (low < high) { const middle = (low + high + 1) >> 1; if (v.tops[middle] <= weight) low = middle; else high = middle - 1; }
  return low;
}

function draw() {
  const begin = performance.now(), [context, width, height] = sized($("picture"));
  if (plotWidth() < 20) return;
  const first = rowAt(v.y[0]), last = rowAt(Math.max(v.y[0], v.y[1] - 1e-9));
  const seen = { tasks: 0, bars: 0, merged: 0, links: 0, once: new Uint8Array(m.count) };
  context.save();
  context.beginPath();
  context.rect(GUTTER, 0, width - GUTTER, height - AXIS);
  context.clip();
  const wide = Math.ceil(plotWidth()), raster = newRaster(wide, last - first + 1);
  const cells = new Float32Array(wide * m.kinds.length);
  for (let at = first; at <= last && v.rows.length; at++) {
    const row = v.rows[at], top = toY(v.tops[at]), high = toY(v.tops[at + 1]) - top;
    const box = { top: top + (high > 5 ? 1 : 0), high: high > 5 ? high - 1.5 : Math.max(high, 0.5) };
    if (row.link >= 0) { drawLink(context, row.link, box, raster); seen.links++; } else drawRow(context, row.index, box, cells, seen, raster);
  }
  raster.show(context);
  if (v.path) drawPath(context);
  if (v.picked >= 0) drawPicked(context);
  context.restore();
  drawLabels(context, first, last, height);
  drawAxis(context, width, height);
  drawOverviewWindow();
  report(seen);
  $("stage").dataset.drawn = String(Number($("stage").dataset.drawn || 0) + 1);
  $("stage").dataset.ms = (performance.now() - begin).toFixed(1);
}
// Lines of pixels, a row of the picture each, set one by one and drawn at once.
const sheet = document.createElement("canvas");
function newRaster(wide, most) {
  const pixels = new Uint8ClampedArray(wide * most * 4), boxes = [];
  return {
    line(box) { boxes.push(box); return (boxes.length - 1) * wide * 4; },
    set(at, [r, g, b], alpha) { pixels[at] = r; pixels[at + 1] = g; pixels[at + 2] = b; pixels[at + 3] = 255 * alpha; },
    show(context) {
      if (!boxes.length) return;
      sheet.width = wide;
      sheet.height = boxes.length;
      sheet.getContext("2d").putImageData(new ImageData(pixels.subarray(0, wide * boxes.length * 4), wide), 0, 0);
      context.imageSmoothingEnabled = false;
      boxes.forEach((box, at) => context.drawImage(sheet, 0, at, wide, 1, GUTTER, box.top, wide, box.high));
    },
  };
}
const rgbOf = (text) => (text.startsWith("#") ? [1, 3, 5].map((at) => parseInt(text.slice(at, at + 2), 16)) : text.match(/[\d.]+/g).slice(0, 3).map(Number));

// Bars from one pixel on; shorter tasks of a row are summed by pixel: the kind that takes most, as strong as it is busy.
function drawRow(context, index, box, cells, seen, raster) {
  const scale = plotWidth() / (v.x[1] - v.x[0]), kinds = m.kinds.length, named = box.high > 9, right = plotWidth();
  let dirty = false, style = -1;
  for (let k = m.rowStart[index]; k < m.rowStart[index + 1]; k++) {
    const i = m.item[k], start = m.start[i], long = m.duration[i] * scale;
    if (start + m.duration[i] < v.x[0] || start - m.lead[i] > v.x[1]) continue;
    if (!seen.once[i]) { seen.once[i] = 1; seen.tasks++; }
    const from = (start - v.x[0]) * scale, faint = v.matches !== null && !v.matches.has(m.id[i]), lane = box.high / m.lanes[k], up = box.top + m.lane[k] * lane;
    if (m.lead[i] * scale > 1.5) { drawWait(context, i, up, lane, scale, faint); style = -1; }
    if (long < 1 && (v.matches === null || faint)) {
      seen.merged++;
      dirty = true;
      const a = Math.max(0, from), b = Math.min(right - 1e-6, from + Math.max(long, 0.02)), strength = faint ? 0.15 : 1;
      for (let cell = Math.floor(a); cell <= b; cell++)
        cells[cell * kinds + m.kind[i]] += strength * (Math.min(b, cell + 1) - Math.max(a, cell));
      continue;
    }
    seen.bars++;
    if (style !== m.kind[i] * 2 + faint) {
      style = m.kind[i] * 2 + faint;
      context.globalAlpha = faint ? 0.15 : 1;
      context.fillStyle = m.colours[m.kinds[m.kind[i]]];
    }
    const left = Math.max(GUTTER - 2, GUTTER + from), wide = Math.min(GUTTER + from + Math.max(long, 1), GUTTER + right + 2) - left;
    context.fillRect(left, up, Math.max(wide - (long > 4 ? 0.7 : 0), 0.8), Math.max(lane - (lane > 4 ? 0.6 : 0), 0.5));
    if (named && long > 34 && lane > 9 && !faint) writeName(context, i, left, up, wide, lane);
  }
  context.globalAlpha = 1;
  if (dirty) rasterCells(box, cells, raster);
}
// Start-up latency is hatched; a thin line follows it while the task waits for its turn on an exclusive link.
function drawWait(context, i, up, lane, scale, faint) {
  const begin = GUTTER + (m.start[i] - m.lead[i] - v.x[0]) * scale, started = begin + m.latency[i] * scale, start = begin + m.lead[i] * scale;
  context.globalAlpha = faint ? 0.15 : 1;
  context.fillStyle = hatch(context, m.kind[i]);
  context.fillRect(begin, up, started - begin, Math.max(lane - 0.6, 0.5));
  context.fillStyle = m.colours[m.kinds[m.kind[i]]];
  if (lane > 4 && m.latency[i]) { context.fillRect(begin, up, started - begin, 1); context.fillRect(begin, up + lane - 1.6, started - begin, 1); }
  context.fillRect(started, up + lane / 2 - 0.5, start - started, 1);
}
function hatch(context, kind) {
  if (m.hatches?.[kind]) return m.hatches[kind];
  const tile = Object.assign(document.createElement("canvas"), { width: 6, height: 6 }), brush = tile.getContext("2d");
  brush.strokeStyle = m.colours[m.kinds[kind]];
  brush.lineWidth = 1.6;
  for (const x of [-6, 0, 6]) { brush.moveTo(x - 1, 7); brush.lineTo(x + 7, -1); }
  brush.stroke();
  m.hatches ??= [];
  return (m.hatches[kind] = context.createPattern(tile, "repeat"));
}
function rasterCells(box, cells, raster) {
  const kinds = m.kinds.length, line = raster.line(box);
  for (let cell = 0; cell < cells.length / kinds; cell++) {
    let most = 0, kind = -1, sum = 0;
    for (let k = 0; k < kinds; k++) {
      const busy = cells[cell * kinds + k];
      sum += busy;
      if (busy > most) { most = busy; kind = k; }
    }
    if (kind >= 0) raster.set(line + cell * 4, v.rgb[kind], 0.25 + 0.75 * Math.min(1, sum));
  }
  cells.fill(0);
}
// Black on light colours, white on dark ones: the colours of kinds are the same in both themes.
const inkOn = (hex) => {
  const [r, g, b] = rgbOf(hex);
  return 0.299 * r + 0.587 * g + 0.114 * b > 140 ? "#111" : "#fff";
};
function writeName(context, i, left, up, wide, lane) {
  context.save();
  context.beginPath();
  context.rect(left, up, wide - 2, lane);
  context.clip();
  context.fillStyle = inkOn(m.colours[m.kinds[m.kind[i]]]);
  context.font = `${Math.min(12, lane - 1)}px system-ui, sans-serif`;
  context.textAlign = "left"; // the labels of rows, drawn before, are to the right
  context.textBaseline = "middle";
  context.fillText(barName(i), Math.max(left, GUTTER) + 3, up + lane / 2);
  context.restore();
}
// Share of a link in use, pixel by pixel, exactly as the transfers in the window say; height and strength tell it.
function drawLink(context, link, box, raster) {
  const wide = Math.ceil(plotWidth()), use = linkUse(link, wide);
  if (box.high <= 6) {
    const line = raster.line(box);
    for (let cell = 0; cell < wide; cell++) if (use[cell] > 0.002) raster.set(line + cell * 4, v.linkRgb, 0.15 + 0.85 * Math.min(1, use[cell]));
    return;
  }
  context.fillStyle = v.transfer;
  for (let cell = 0, end = 0; cell < wide; cell = end) { // runs of one height are one box
    end = cell + 1;
    while (end < wide && Math.abs(use[end] - use[cell]) < 0.004) end++;
    const high = Math.min(1, use[cell]) * box.high;
    if (use[cell] > 0.002) context.fillRect(GUTTER + cell, box.top + box.high - Math.max(0.8, high), end - cell, Math.max(0.8, high));
  }
}
function linkUse(link, wide) {
  const step = new Float32Array(wide + 2), edge = new Float32Array(wide + 2), scale = plotWidth() / (v.x[1] - v.x[0]);
  for (let k = m.users.start[link]; k < m.users.start[link + 1]; k++) {
    const i = m.users.interval[k], share = m.users.share[k];
    const a = Math.max(0, (m.start[i] - v.x[0]) * scale), b = Math.min(wide, (m.start[i] + m.duration[i] - v.x[0]) * scale);
    if (b <= a || (v.matches && !v.matches.has(m.id[i]))) continue;
    const first = Math.floor(a), last = Math.min(wide - 1, Math.floor(b));
    if (first === last) { edge[first] += share * (b - a); continue; }
    edge[first] += share * (first + 1 - a);
    edge[last] += share * (b - last);
    step[first + 1] += share;
    step[last] -= share;
  }
  for (let cell = 0, level = 0; cell < wide; cell++) { level += step[cell]; edge[cell] += level; }
  return edge;
}
function drawPath(context) {
  context.strokeStyle = v.mark;
  context.lineWidth = 2;
  context.beginPath();
  let before = null;
  for (const task of m.chain.task) {
    const i = m.at[task], [top, lane] = i < 0 ? [] : spotOf(i);
    if (top === undefined) { before = null; continue; }
    const y = lane > 24 ? top + lane - 4 : top + lane / 2; // below the names of bars
    const a = Math.max(GUTTER - 5, toX(m.start[i])), b = Math.min(GUTTER + plotWidth() + 5, toX(m.start[i] + m.duration[i]));
    if (before) { context.moveTo(before[0], before[1]); context.lineTo(a, y); } else context.moveTo(a, y);
    context.lineTo(Math.max(a, b), y);
    before = [Math.max(a, b), y];
  }
  context.stroke();
}
// Top and height of the lane that shows a task: in its own row, or in that of a device alike.
function spotOf(i) {
  for (const places of [v.place, v.stand]) for (const k of m.entries(i)) {
    const place = places.get(m.entryRow[k]);
    if (place === undefined) continue;
    const top = toY(v.tops[place]), lane = (toY(v.tops[place + 1]) - top) / m.lanes[k];
    return [top + m.lane[k] * lane, lane];
  }
  return [];
}
function outline(context, i, style, width) {
  const [up, lane] = spotOf(i);
  if (up === undefined) return null;
  const a = toX(m.start[i]), b = toX(m.start[i] + m.duration[i]);
  context.strokeStyle = style;
  context.lineWidth = width;
  context.strokeRect(a - 1, up - 1, Math.max(b - a, 1) + 2, Math.max(lane, 1) + 2);
  return [a, Math.max(b, a + 1), up + lane / 2];
}
function drawPicked(context) {
  const here = outline(context, v.picked, v.ink, 2.5);
  if (!here) return;
  for (const i of causesOf(v.picked)) {
    const there = outline(context, i, v.accent, 1.5);
    if (!there) continue;
    context.beginPath();
    context.moveTo(there[1], there[2]);
    context.lineTo(here[0], here[2]);
    context.stroke();
  }
}
const LINE = 13;
// Up to two lines: whose row it is, and how many are alike.  Rows too low for words have the name of the first of them.
function labelOf(row) {
  if (row.link >= 0) return isClosed(row) ? [`${row.band.slice(7)} × ${number(row.alike)}`, "alike"] : [row.name];
  if (!row.leads) return [row.band];
  return isClosed(row) ? [row.name, `and ${number(row.alike - 1)} alike`] : [row.name];
}
function drawLabels(context, first, last, height) {
  context.fillStyle = v.surface;
  context.fillRect(0, 0, GUTTER, height);
  context.textAlign = "right";
  context.textBaseline = "middle";
  const fits = (label) => context.measureText(label).width <= GUTTER - 20;
  const short = (label) => { let text = label; while (text.length > 2 && !fits(text)) text = `…${text.slice(2)}`; return text; };
  for (let at = first, free = -Infinity; at <= last && v.rows.length; at++) {
    const row = v.rows[at], top = toY(v.tops[at]), high = toY(v.tops[at + 1]) - top, opens = row.leads && (row.link < 0 || at === first || row.band !== v.rows[at - 1].band);
    if (opens && at > first) { context.fillStyle = v.quiet; context.globalAlpha = 0.35; context.fillRect(0, top, context.canvas.clientWidth, 1); context.globalAlpha = 1; }
    const visible = Math.max(top, 0), room = Math.min(top + high, height - AXIS) - visible, words = labelOf(row);
    context.font = "600 11px system-ui, sans-serif";
    const lines = high >= 2 * LINE ? words : [words.length > 1 && fits(words.join(" ")) ? words.join(" ") : words[0]];
    const middle = high >= 11 ? visible + room / 2 : visible + LINE / 2;
    if (high >= 11 ? room < 9 || middle - LINE / 2 < free - 1 : !opens || visible < free || visible > height - AXIS - LINE) continue;
    lines.forEach((line, k) => {
      context.font = `${row.leads && row.link < 0 && !k ? "600 " : ""}11px system-ui, sans-serif`;
      context.fillStyle = row.leads && !k ? v.ink : v.quiet;
      context.fillText(short(high < 11 && row.link >= 0 ? row.band : line), GUTTER - 6, middle + (k - (lines.length - 1) / 2) * LINE);
    });
    if (row.alike > 1 && row.leads && row.owner === row.group && high >= 11) { context.fillStyle = v.quiet; context.textAlign = "left"; context.fillText(isClosed(row) ? "▸" : "▾", 4, middle); context.textAlign = "right"; }
    free = middle + (lines.length * LINE) / 2;
  }
}
function drawAxis(context, width, height) {
  const [unit, size] = axisUnit((v.x[1] - v.x[0]) * m.tick), span = ((v.x[1] - v.x[0]) * m.tick) / size;
  const rough = span / Math.max(3, plotWidth() / 110), power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= rough);
  const decimals = Math.max(0, Math.ceil(-Math.log10(step) - 1e-9));
  context.fillStyle = v.surface;
  context.fillRect(0, height - AXIS, width, AXIS);
  context.fillStyle = context.strokeStyle = v.quiet;
  context.font = "11px system-ui, sans-serif";
  context.textAlign = "center";
  context.textBaseline = "top";
  context.lineWidth = 1;
  for (let at = Math.ceil((v.x[0] * m.tick) / size / step) * step; at <= (v.x[1] * m.tick) / size + 1e-9; at += step) {
    const x = toX((at * size) / m.tick);
    context.globalAlpha = 0.25;
    context.fillRect(x, 0, 1, height - AXIS);
    context.globalAlpha = 1;
    if (x < width - 34) context.fillText(at.toLocaleString("en", { minimumFractionDigits: decimals, maximumFractionDigits: decimals }), x, height - AXIS + 5);
  }
  context.textAlign = "right";
  context.fillText(`[${unit}]`, width - 4, height - AXIS + 5);
}

// ---- the strip on top: computation over the whole iteration, one line for each device --------------------------
let strip = null;
function drawOverview() {
  const canvas = document.createElement("canvas"), wide = Math.max(100, Math.floor(plotWidth())), rows = m.rows.map((_, row) => row);
  const shown = rows.filter((i) => m.rows[i].stream.startsWith("compute")), high = Math.min(50, Math.max(shown.length, 1));
  canvas.width = wide;
  canvas.height = high;
  const busy = new Float32Array(wide * high * m.kinds.length), scale = wide / m.end;
  shown.forEach((row, at) => {
    const line = Math.floor((at * high) / shown.length);
    for (const i of m.item.subarray(m.rowStart[row], m.rowStart[row + 1])) {
      const a = m.start[i] * scale, b = Math.min(wide - 1e-6, a + m.duration[i] * scale);
      for (let cell = Math.floor(a); cell <= b; cell++)
        busy[(line * wide + cell) * m.kinds.length + m.kind[i]] += Math.min(b, cell + 1) - Math.max(a, cell);
    }
  });
  const context = canvas.getContext("2d"), image = context.createImageData(wide, high), per = shown.length / high;
  for (let cell = 0; cell < wide * high; cell++) {
    let most = 0, kind = -1, sum = 0;
    for (let k = 0; k < m.kinds.length; k++) { const part = busy[cell * m.kinds.length + k]; sum += part; if (part > most) { most = part; kind = k; } }
    if (kind < 0) continue;
    image.data.set([...v.rgb[kind], 60 + 195 * Math.min(1, sum / per)], cell * 4);
  }
  context.putImageData(image, 0, 0);
  strip = canvas;
}
function drawOverviewWindow() {
  const [context, width, height] = sized($("overview"));
  context.imageSmoothingEnabled = false;
  if (strip) context.drawImage(strip, GUTTER, 3, width - GUTTER, height - 6);
  context.fillStyle = v.quiet;
  context.font = "11px system-ui, sans-serif";
  context.textAlign = "right";
  context.fillText("all the time", GUTTER - 6, height / 2 + 4);
  const a = GUTTER + (v.x[0] / m.end) * (width - GUTTER), b = GUTTER + (v.x[1] / m.end) * (width - GUTTER);
  context.fillStyle = v.ground;
  context.globalAlpha = 0.65;
  context.fillRect(GUTTER, 0, a - GUTTER, height);
  context.fillRect(b, 0, width - b, height);
  context.globalAlpha = 1;
  context.strokeStyle = v.ink;
  context.lineWidth = 2;
  context.strokeRect(a + 1, 1, Math.max(b - a - 2, 2), height - 2);
}
