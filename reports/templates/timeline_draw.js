// ---- drawing ------------------------------------------------------------------------------------------
// v: rows shown with their tops (in weights), the window in ticks and weights, and the canvas.
const v = { rows: [], tops: [], total: 1, x: [0, 1], y: [0, 1], matches: null, picked: -1, path: true };
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
  const seen = { tasks: 0, bars: 0, merged: 0, links: 0 };
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
  for (let i = m.rowStart[index]; i < m.rowStart[index + 1]; i++) {
    const start = m.start[i], long = m.duration[i] * scale;
    if (start + m.duration[i] < v.x[0] || start > v.x[1]) continue;
    seen.tasks++;
    const from = (start - v.x[0]) * scale, faint = v.matches !== null && !v.matches.has(m.id[i]);
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
    const lane = box.high / m.lanes[i], up = box.top + m.lane[i] * lane;
    const left = Math.max(GUTTER - 2, GUTTER + from), wide = Math.min(GUTTER + from + Math.max(long, 1), GUTTER + right + 2) - left;
    context.fillRect(left, up, Math.max(wide - (long > 4 ? 0.7 : 0), 0.8), Math.max(lane - (lane > 4 ? 0.6 : 0), 0.5));
    if (named && long > 46 && lane > 9 && !faint) writeName(context, i, left, up, wide, lane);
  }
  context.globalAlpha = 1;
  if (dirty) rasterCells(box, cells, raster);
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
  context.fillText(m.names[m.name[i]], Math.max(left, GUTTER) + 3, up + lane / 2);
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
    const i = m.at[task], place = i < 0 ? undefined : v.place.get(m.row[i]);
    if (place === undefined) { before = null; continue; }
    const high = v.tops[place + 1] - v.tops[place], y = toY(v.tops[place] + (high * (m.lane[i] + 0.5)) / m.lanes[i]);
    const a = Math.max(GUTTER - 5, toX(m.start[i])), b = Math.min(GUTTER + plotWidth() + 5, toX(m.start[i] + m.duration[i]));
    if (before) { context.moveTo(before[0], before[1]); context.lineTo(a, y); } else context.moveTo(a, y);
    context.lineTo(Math.max(a, b), y);
    before = [Math.max(a, b), y];
  }
  context.stroke();
}
function outline(context, i, style, width) {
  const place = v.place.get(m.row[i]);
  if (place === undefined) return null;
  const top = toY(v.tops[place]), lane = (toY(v.tops[place + 1]) - top) / m.lanes[i], up = top + m.lane[i] * lane;
  const a = toX(m.start[i]), b = toX(m.start[i] + m.duration[i]);
  context.strokeStyle = style;
  context.lineWidth = width;
  context.strokeRect(a - 1, up - 1, Math.max(b - a, 1) + 2, Math.max(lane, 1) + 2);
  return [a, Math.max(b, a + 1), up + lane / 2];
}
function drawPicked(context) {
  const here = outline(context, v.picked, v.ink, 2.5);
  if (!here || m.measuredRow[m.row[v.picked]]) return;
  for (const task of dependencies(m.id[v.picked])) {
    if (m.at[task] < 0) continue;
    const there = outline(context, m.at[task], v.accent, 1.5);
    if (!there) continue;
    context.beginPath();
    context.moveTo(there[1], there[2]);
    context.lineTo(here[0], here[2]);
    context.stroke();
  }
}
function drawLabels(context, first, last, height) {
  context.fillStyle = v.surface;
  context.fillRect(0, 0, GUTTER, height);
  context.textAlign = "right";
  context.textBaseline = "middle";
  let free = -Infinity;
  const most = Math.floor((GUTTER - 10) / 6), short = (label) => (label.length > most ? `…${label.slice(1 - most)}` : label);
  for (let at = first; at <= last && v.rows.length; at++) {
    const top = toY(v.tops[at]), high = toY(v.tops[at + 1]) - top, opens = at === first || v.rows[at].band !== v.rows[at - 1].band;
    if (opens && at > first) { context.fillStyle = v.quiet; context.globalAlpha = 0.5; context.fillRect(0, top, context.canvas.clientWidth, 1); context.globalAlpha = 1; }
    if (high >= 11) {
      context.fillStyle = v.ink;
      context.font = "11px system-ui, sans-serif";
      context.fillText(short(v.rows[at].label), GUTTER - 6, top + high / 2);
    } else if (opens && top < height - AXIS - 12) {
      let end = at;
      while (end + 1 < v.rows.length && v.rows[end + 1].band === v.rows[at].band) end++;
      const up = Math.max(top, 0, free), room = Math.min(toY(v.tops[end + 1]), height - AXIS) - up;
      if (room < 12 && end < last) continue;
      context.fillStyle = v.ink;
      context.font = "600 11px system-ui, sans-serif";
      context.fillText(short(v.rows[at].band), GUTTER - 6, up + 8);
      context.fillStyle = v.quiet;
      context.font = "11px system-ui, sans-serif";
      if (room > 28 && end > at) context.fillText(`${end - at + 1} rows`, GUTTER - 6, up + 22);
      free = up + (room > 28 ? 28 : 14);
    }
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
  const canvas = document.createElement("canvas"), wide = Math.max(100, Math.floor(plotWidth())), rows = m.rows.map((_, i) => i);
  const shown = rows.filter((i) => m.rows[i].stream.startsWith("compute")), high = Math.min(50, Math.max(shown.length, 1));
  canvas.width = wide;
  canvas.height = high;
  const busy = new Float32Array(wide * high * m.kinds.length), scale = wide / m.end;
  shown.forEach((row, at) => {
    const line = Math.floor((at * high) / shown.length);
    for (let i = m.rowStart[row]; i < m.rowStart[row + 1]; i++) {
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
