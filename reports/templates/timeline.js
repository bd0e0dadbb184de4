// ---- what the reader does -------------------------------------------------------------------------------
const number = (n) => n.toLocaleString("en");
const words = (word) => word.replaceAll("_", " ");
const ticks = (n) => time(n * m.tick), when = (n) => moment(n * m.tick);

function report(seen) {
  const clipped = v.x[0] > 0 || v.x[1] < m.end || v.y[0] > 0 || v.y[1] < v.total, joined = v.every.length - v.every.filter((row) => !isHidden(row)).length;
  $("status").textContent =
    `${number(seen.tasks)} of ${number(m.count)} ${clipped ? "tasks in view" : "tasks"} as ${number(seen.bars + seen.merged)} bars` +
    (seen.merged ? `, ${number(seen.merged)} of them shorter than a pixel (${time(((v.x[1] - v.x[0]) / plotWidth()) * m.tick)}) and merged, pixel by pixel, into the kind that takes most of the pixel; zoom in to see them` : "") +
    (seen.links ? `; rows of ${number(seen.links)} links` : "") + (joined ? `. ${number(joined)} more rows look alike and are joined` : "") + ".";
  listLongest();
}
// The longest tasks as a table, for readers who cannot see the canvas; filled while it is open.
function listLongest() {
  if (!$("longest").open) return;
  const seen = [];
  v.rows.forEach((row, at) => {
    if (row.link >= 0 || v.tops[at + 1] <= v.y[0] || v.tops[at] >= v.y[1]) return;
    for (const i of m.item.subarray(m.rowStart[row.index], m.rowStart[row.index + 1]))
      if (m.start[i] <= v.x[1] && m.start[i] + m.duration[i] >= v.x[0]) seen.push(i);
  });
  const once = [...new Set(seen)].sort((a, b) => m.duration[b] - m.duration[a]).slice(0, 12), seconds = (get) => once.map((i) => get(i) * m.tick);
  const lasts = unitOf(seconds((i) => m.duration[i]), TIMES), moved = unitOf(once.map((i) => m.bytes[i]), BYTES), places = Math.max(0, 3 - Math.ceil(Math.log10((m.end * m.tick) / lasts[1] / 100)));
  const start = (i) => ((m.start[i] * m.tick) / lasts[1]).toLocaleString("en", { minimumFractionDigits: places, maximumFractionDigits: places });
  document.querySelectorAll("#longest th").forEach((head, at) => { if (at > 3) head.textContent = `${["start", "duration", "moved"][at - 4]} [${at < 6 ? lasts[0] : moved[0]}]`; });
  document.querySelector("#longest tbody").replaceChildren(...once.map((i) => {
    const line = document.createElement("tr"), cells = [nameOf(i), m.layers[m.layer[i]] || "–", words(m.kinds[m.kind[i]]), rowOf(i), start(i), three((m.duration[i] * m.tick) / lasts[1]), m.bytes[i] ? three(m.bytes[i] / moved[1]) : "–"];
    cells.forEach((text, at) => Object.assign(line.insertCell(), { textContent: text, className: at < 4 ? "word" : "" }));
    return line;
  }));
}
function chooseRows() {
  const wanted = $("rows").value, part = $("row-filter").value.toLowerCase(), every = v.every;
  v.rows = every.filter((row) => !isHidden(row) && (wanted === "all" || (wanted === "devices" ? row.link < 0 : wanted === "links" ? row.link >= 0 : row.band === wanted)) && row.label.toLowerCase().includes(part));
  v.tops = [0];
  for (const row of v.rows) v.tops.push(v.tops.at(-1) + row.weight);
  v.total = Math.max(v.tops.at(-1), 1);
  v.place = new Map(v.rows.map((row, at) => [row.index, at]).filter(([index]) => index >= 0));
  const shown = new Map(v.rows.map((row, at) => [`${row.owner} ${row.band}`, at]));
  v.stand = new Map(every.filter((row) => row.link < 0 && isHidden(row)).map((row) => [row.index, shown.get(`${row.group} ${row.band}`)]));
  v.y = [0, v.total];
  // rows keep a height at which words fit, as long as the page does not grow beyond two screens
  $("stage").style.setProperty("--high", `${Math.max(110, AXIS + Math.min(24 * v.total, Math.max(640, Math.min(1600, 14 * v.rows.length))))}px`);
  draw();
}
function toggle(row) { // opens or joins rows alike
  const key = groupKey(row);
  if (!v.open.delete(key)) v.open.add(key);
  chooseRows();
}
function openAlike(all) {
  v.openAll = all;
  v.open.clear();
  $("alike").checked = all;
  chooseRows();
}
function fillRows() {
  const all = allRows(), crowded = all.filter((row) => row.link < 0 && row.leads && !isHidden(row)).length > 8;
  v.every = all.map((row) => ({ ...row, weight: weightOf(row, crowded) }));
  const count = (see) => v.every.filter(see).length, bands = [...new Set(v.every.map((row) => row.band))];
  const options = m.whole ? [["all", "devices and links"], ["devices", "devices"], ["links", `links in use, ${count((row) => row.link >= 0)}`]] : [["all", "all"]];
  const before = $("rows").value;
  $("rows").replaceChildren(...options.map(([value, label]) => new Option(label, value)));
  const group = Object.assign(document.createElement("optgroup"), { label: "only" });
  group.append(...bands.map((band) => new Option(band, band)));
  $("rows").append(group);
  $("alike").parentElement.hidden = !v.every.some((row) => row.alike > 1);
  $("rows").value = before || "all";
  if ($("rows").selectedIndex < 0) $("rows").value = "all";
}
function fillKey() {
  const entry = (text, style, mark = "") => {
    const key = Object.assign(document.createElement("span"), { className: "key" }), box = Object.assign(document.createElement("i"), { className: mark });
    if (style) box.style.background = style;
    key.append(box, text);
    return key;
  };
  $("key").replaceChildren(...Object.keys(m.colours).filter((kind) => m.kinds.includes(kind)).map((kind) => entry(words(kind), m.colours[kind])), ...(m.latency.some((ticks) => ticks > 0) ? [entry("start-up latency", "", "hatched")] : []), ...(m.whole ? [entry("share of a link in use", "", "use"), entry("critical path", "", "line")] : []));
}
const clampX = (a, b) => { const width = Math.min(m.end, Math.max(b - a, 10)), from = Math.min(Math.max(0, a), m.end - width); v.x = [from, from + width]; };
const clampY = (a, b) => { const high = Math.min(v.total, Math.max(b - a, 0.5)), from = Math.min(Math.max(0, a), v.total - high); v.y = [from, from + high]; };
function zoom(factor, about = (v.x[0] + v.x[1]) / 2) { clampX(about - (about - v.x[0]) * factor, about + (v.x[1] - about) * factor); draw(); }
function steer(key) {
  const width = v.x[1] - v.x[0], high = v.y[1] - v.y[0];
  const factor = { "+": 0.5, "=": 0.5, "-": 2, w: 0.5, s: 2 }[key], move = { ArrowLeft: -0.25, ArrowRight: 0.25, a: -0.25, d: 0.25 }[key], climb = { ArrowUp: -0.1, ArrowDown: 0.1, PageUp: -0.8, PageDown: 0.8 }[key];
  if (factor) return zoom(factor), true;
  if (move) { clampX(v.x[0] + move * width, v.x[1] + move * width); draw(); return true; }
  if (climb) { if (high >= v.total) return false; clampY(v.y[0] + climb * high, v.y[1] + climb * high); draw(); return true; }
  if (key === "0") { v.x = [0, m.end]; v.y = [0, v.total]; draw(); return true; }
  if (key === "o" && !$("alike").parentElement.hidden) { openAlike(!v.openAll); return true; }
  if (key === "Enter") return nextMatch(), true;
  if (key === "Escape") { pick(-1); return true; }
  return false;
}

// ---- search -----------------------------------------------------------------------------------------------
function search() { find(); draw(); }
function find() {
  const part = $("search").value.trim().toLowerCase();
  v.matches = null;
  v.found = [];
  if (part) {
    const layers = m.layers.map((layer) => layer.toLowerCase().includes(part));
    v.matches = new Set();
    for (let i = 0; i < m.count; i++) if (layers[m.layer[i]] || nameOf(i).toLowerCase().includes(part) || barName(i).toLowerCase().includes(part)) { v.matches.add(m.id[i]); v.found.push(i); }
    v.found.sort((a, b) => m.start[a] - m.start[b]);
  }
  v.next = 0;
  const ends = v.found.reduce((end, i) => Math.max(end, m.start[i] + m.duration[i]), 0);
  $("found").textContent = !part ? "" : !v.found.length ? "No task or layer has this in its name." :
    `${number(v.found.length)} tasks, from ${when(m.start[v.found[0]])} to ${when(ends)}; all other tasks are dimmed.`;
}
function nextMatch() {
  if (!v.found?.length) return;
  pick(v.found[v.next++ % v.found.length], true);
}

// ---- one task ---------------------------------------------------------------------------------------------
function summary(i) {
  return `${nameOf(i)}\n${rowOf(i)} · ${words(m.kinds[m.kind[i]])}\nstarts ${when(m.start[i])}, lasts ${ticks(m.duration[i])}` + (m.latency[i] ? `, after ${ticks(m.latency[i])} of start-up latency` : "") + (m.cause[i] >= 0 ? `\nbegan upon the end of ${nameOf(m.cause[i])}` : "") + (m.bytes[i] ? `, moves ${bytes(m.bytes[i])}` : "");
}
function reveal(i) { // brings a task into the window
  if (spotOf(i)[0] === undefined) { $("rows").value = "all"; $("row-filter").value = ""; chooseRows(); }
  const width = v.x[1] - v.x[0], rows = Array.from(m.entries(i), (k) => m.entryRow[k]), high = v.y[1] - v.y[0];
  const place = [v.place, v.stand].flatMap((places) => rows.map((row) => places.get(row))).find((at) => at !== undefined);
  if (m.start[i] < v.x[0] || m.start[i] > v.x[1]) clampX(m.start[i] - width / 3, m.start[i] + (2 * width) / 3);
  const long = m.duration[i];
  if (long * 400 < width) clampX(m.start[i] - long * 30, m.start[i] + long * 60);
  if (v.tops[place] < v.y[0] || v.tops[place + 1] > v.y[1]) clampY(v.tops[place] - high / 2, v.tops[place] + high / 2);
}
function pick(i, show = false) {
  v.picked = i;
  if (i >= 0 && show) reveal(i);
  if (i >= 0) describe(i);
  draw();
}
function element(tag, text, className = "") { return Object.assign(document.createElement(tag), { textContent: text, className }); }
function listOf(title, entries, empty) {
  const part = document.createElement("div"), list = document.createElement("ul");
  part.append(element("h3", title));
  for (const { i, text, last } of entries.slice(0, 200)) {
    const item = element("li", "", last ? "last" : ""), button = element("button", text);
    button.type = "button";
    if (i >= 0) button.addEventListener("click", () => { pick(i, true); $("details-title").scrollIntoView({ block: "nearest" }); });
    else button.disabled = true;
    item.append(button);
    list.append(item);
  }
  part.append(entries.length ? list : element("p", empty, "quiet"));
  if (entries.length > 200) part.append(element("p", `and ${number(entries.length - 200)} more`, "quiet"));
  return part;
}
// What a task waited for that the page knows: all that it depends on, or else what ended last.
function causesOf(i) {
  const at = m.measured(i) ? m.atMeasured : m.at, found = m.whole ? dependencies(m.id[i]).map((task) => at[task]).filter((each) => each >= 0) : [];
  return m.cause[i] >= 0 && !found.includes(m.cause[i]) ? [...found, m.cause[i]] : found;
}
function waits(i) { // the last to end first
  const ends = (each) => m.start[each] + m.duration[each], queue = m.own.stream_before[m.id[i]] - 1, at = m.measured(i) ? m.atMeasured : m.at;
  const inside = causesOf(i);
  if (m.whole && queue >= 0 && at[queue] >= 0 && !inside.includes(at[queue])) inside.push(at[queue]);
  inside.sort((a, b) => (b === m.cause[i]) - (a === m.cause[i]) || ends(b) - ends(a));
  return inside.map((each) => ({ i: each, last: each === m.cause[i], text: `${nameOf(each)} ended at ${when(ends(each))}${m.whole && at[queue] === each ? ", its turn on the device" : ""}${each === m.cause[i] ? " – the last" : ""}` }));
}
function describe(i) {
  const task = m.id[i], measured = m.measured(i), list = document.createElement("dl");
  const line = (name, value) => list.append(element("dt", name), element("dd", value));
  line("layer", [...new Set([m.layers[m.layer[i]] || "–", words(m.phases[m.phase[i]]), words(m.kinds[m.kind[i]])])].join(", "));
  line("on", rowOf(i));
  line("time", `${when(m.start[i])} to ${when(m.start[i] + m.duration[i])}: ${ticks(m.duration[i])}`);
  if (m.bytes[i]) line("moves", bytes(m.bytes[i]));
  if (m.whole && !measured) {
    const alone = m.own.alone[task];
    line("alone", `${ticks(alone)}${m.duration[i] > alone * 1.001 + 1 ? `; ${ticks(m.duration[i] - alone)} lost to others on the same links or device` : "; nothing lost to others"}`);
  }
  if (m.lead[i]) line("before it", [m.latency[i] ? `${ticks(m.latency[i])} of start-up latency` : "", m.lead[i] - m.latency[i] > 1 ? `${ticks(m.lead[i] - m.latency[i])} until its turn on an exclusive link` : ""].filter(Boolean).join(", "));
  const other = measured ? m.at[task] : m.atMeasured[task];
  if (other >= 0) line(measured ? "simulated" : "measured", `${when(m.start[other])} to ${when(m.start[other] + m.duration[other])}: ${ticks(m.duration[other])}`);
  const step = m.step.get(task);
  if (step !== undefined) line("critical path", `step ${step + 1} of ${m.chain.task.length}; waited for ${m.chain.words[step]}${m.chain.wait_s[step] ? `, ${time(m.chain.wait_s[step])} lost` : ""}`);
  const crossed = [];
  for (let k = m.routeStart[m.wires.route[task]]; k < m.routeStart[m.wires.route[task] + 1]; k++) crossed.push(m.wires.names[m.wires.route_link[k]]);
  if (crossed.length) line("links", crossed.length > 8 ? `${number(crossed.length)}: ${crossed.slice(0, 8).join(", ")}, …` : crossed.join(", "));
  $("details-title").textContent = nameOf(i);
  const sides = element("div", "", "sides"), earlier = m.whole ? carried(task) : [], at = measured ? m.atMeasured : m.at;
  const before = [...waits(i), ...earlier.map((each) => ({ i: -1, text: `${at[each] >= 0 ? nameOf(at[each]) : "a task"}, of the iteration before` }))];
  const freed = m.whole ? m.feeds(task).map((each) => at[each]).filter((each) => each >= 0) : Array.from(m.freed(i));
  const after = freed.map((each) => ({ i: each, text: `${nameOf(each)} starts at ${when(m.start[each] - m.lead[each])}` }));
  sides.append(list, listOf(`Waited for: ${number(before.length)}`, before, "Nothing in this iteration."), listOf(`${m.whole ? "Waiting for it" : "Began upon its end"}: ${number(after.length)}`, after, "Nothing in this iteration."));
  $("details-body").replaceChildren(sides);
}
function describeLink(row, tick) {
  const { start, interval, share } = m.users, users = [];
  for (let k = start[row.link]; k < start[row.link + 1]; k++) {
    const i = interval[k];
    if (m.start[i] <= tick && tick <= m.start[i] + m.duration[i]) users.push({ i, share: share[k], text: `${nameOf(i)}: ${(100 * share[k]).toFixed(1)} % of the link, ${bytes(m.bytes[i])}` });
  }
  users.sort((a, b) => b.share - a.share);
  $("details-title").textContent = `${row.label} at ${when(tick)}`;
  const speed = m.wires.bandwidth_bytes_per_s[row.link], kind = m.wires.exclusive[row.link] ? "one transfer at a time" : "shared fairly";
  $("details-body").replaceChildren(element("p", `${m.wires.classes[row.link]}, ${bytes(speed)}/s, ${kind}; ${(100 * users.reduce((sum, each) => sum + each.share, 0)).toFixed(1)} % in use.`, "quiet"), listOf(`${number(users.length)} tasks use it at that time`, users, "None."));
}

// ---- the mouse --------------------------------------------------------------------------------------------
function hit(x, y) {
  const weight = toWeight(y), tick = toTick(x);
  if (x < GUTTER || y > plotHeight() || !v.rows.length || weight >= v.tops.at(-1)) return null;
  const place = rowAt(weight), row = v.rows[place];
  if (row.link >= 0) return { row, tick, i: -1 };
  const share = (weight - v.tops[place]) / (v.tops[place + 1] - v.tops[place]), slack = (1.5 * (v.x[1] - v.x[0])) / plotWidth();
  let best = -1, gap = Infinity;
  for (let k = m.rowStart[row.index]; k < m.rowStart[row.index + 1]; k++) {
    const i = m.item[k], away = Math.max(m.start[i] - m.lead[i] - tick, tick - m.start[i] - m.duration[i], 0);
    if (away > slack || Math.floor(share * m.lanes[k]) !== m.lane[k]) continue;
    if (away < gap || (away === gap && best >= 0 && m.duration[i] < m.duration[best])) { best = i; gap = away; }
  }
  return { row, tick, i: best };
}
function hover(event) {
  const box = $("picture").getBoundingClientRect(), x = event.clientX - box.left, y = event.clientY - box.top, found = hit(x, y);
  $("tip").hidden = !found;
  if (!found) return;
  $("tip").textContent = found.i >= 0 ? summary(found.i) : found.row.link >= 0 ? `${found.row.label}\n${(100 * Math.min(1, linkUse(found.row.link, Math.ceil(plotWidth()))[Math.floor(x - GUTTER)])).toFixed(1)} % in use at ${ticks(found.tick)}` : `${found.row.label}\nidle at ${ticks(found.tick)}`;
  $("tip").style.left = `${Math.min(x + 14, box.width - 300)}px`;
  $("tip").style.top = `${y + 56 + 14}px`;
}
// Fingers: one drags the picture sideways (the page scrolls up and down), two pinch it; a tap picks a task.
const fingers = new Map();
function touched(event, at) {
  const place = at(event), before = fingers.get(event.pointerId), others = [...fingers.entries()].filter(([id]) => id !== event.pointerId);
  if (!before) return;
  fingers.set(event.pointerId, { x: place[0], moved: before.moved + Math.abs(place[0] - before.x) });
  if (!others.length) { const by = ((before.x - place[0]) / plotWidth()) * (v.x[1] - v.x[0]); clampX(v.x[0] + by, v.x[1] + by); draw(); return; }
  const other = others[0][1].x, wide = Math.max(8, Math.abs(place[0] - other));
  zoom(Math.max(8, Math.abs(before.x - other)) / wide, toTick(Math.max(GUTTER, (place[0] + other) / 2)));
}
function tapped(x, y) {
  if (x < GUTTER) {
    const row = y < plotHeight() && v.rows[rowAt(toWeight(y))];
    return row?.alike > 1 ? toggle(row) : undefined;
  }
  const found = hit(x, y);
  if (found?.i >= 0) pick(found.i);
  else if (found?.row.link >= 0) { v.picked = -1; describeLink(found.row, found.tick); draw(); } else pick(-1);
}
function listen() {
  const picture = $("picture"), stage = $("stage");
  let from = null;
  const at = (event) => { const box = picture.getBoundingClientRect(); return [event.clientX - box.left, event.clientY - box.top]; };
  picture.addEventListener("pointerdown", (event) => {
    if (event.pointerType === "touch") { fingers.set(event.pointerId, { x: at(event)[0], moved: 0 }); return; }
    from = at(event); picture.setPointerCapture(event.pointerId); $("tip").hidden = true;
  });
  picture.addEventListener("pointercancel", (event) => fingers.delete(event.pointerId));
  picture.addEventListener("pointermove", (event) => {
    if (event.pointerType === "touch") return touched(event, at);
    if (!from) return hover(event);
    draw();
    const [x, y] = at(event), context = picture.getContext("2d"), tall = Math.abs(y - from[1]) > 40;
    context.fillStyle = v.accent;
    context.globalAlpha = 0.25;
    context.fillRect(Math.min(x, from[0]), tall ? Math.min(y, from[1]) : 0, Math.abs(x - from[0]), tall ? Math.abs(y - from[1]) : plotHeight());
    context.globalAlpha = 1;
  });
  picture.addEventListener("pointerup", (event) => {
    const finger = fingers.get(event.pointerId);
    if (finger) { fingers.delete(event.pointerId); return finger.moved < 8 && !fingers.size ? tapped(...at(event)) : undefined; }
    if (!from) return;
    const [x, y] = at(event), [a, b] = [from, [x, y]].map(([px]) => toTick(Math.max(px, GUTTER))).sort((p, q) => p - q);
    const dragged = Math.abs(x - from[0]) > 5;
    if (dragged) {
      clampX(a, b);
      if (Math.abs(y - from[1]) > 40) clampY(toWeight(Math.min(y, from[1])), toWeight(Math.max(y, from[1])));
      draw();
    } else tapped(x, y);
    from = null;
  });
  picture.addEventListener("pointerleave", () => { $("tip").hidden = true; });
  picture.addEventListener("dblclick", () => steer("0"));
  stage.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.shiftKey) return; // the page scrolls
    event.preventDefault();
    const [x] = at(event);
    if (event.ctrlKey) zoom(Math.exp(event.deltaY / 400), toTick(Math.max(x, GUTTER)));
    else { const by = ((event.deltaY + event.deltaX) / plotWidth()) * (v.x[1] - v.x[0]); clampX(v.x[0] + by, v.x[1] + by); draw(); }
  }, { passive: false });
  let held = false;
  const slide = (event) => {
    const box = $("overview").getBoundingClientRect(), middle = ((event.clientX - box.left - GUTTER) / (box.width - GUTTER)) * m.end, width = v.x[1] - v.x[0];
    clampX(middle - width / 2, middle + width / 2);
    draw();
  };
  $("overview").addEventListener("pointerdown", (event) => { held = true; $("overview").setPointerCapture(event.pointerId); slide(event); });
  $("overview").addEventListener("pointermove", (event) => held && slide(event));
  $("overview").addEventListener("pointerup", () => { held = false; });
  stage.addEventListener("keydown", (event) => { if (!event.ctrlKey && !event.metaKey && steer(event.key)) event.preventDefault(); });
  document.querySelectorAll("[data-key]").forEach((button) => button.addEventListener("click", () => steer(button.dataset.key)));
  $("alike").addEventListener("change", () => openAlike($("alike").checked));
  $("rows").addEventListener("change", chooseRows);
  $("row-filter").addEventListener("input", chooseRows);
  $("search").addEventListener("input", search);
  $("search").addEventListener("keydown", (event) => event.key === "Enter" && nextMatch());
  $("next").addEventListener("click", nextMatch);
  $("show-path")?.addEventListener("change", () => { v.path = $("show-path").checked; draw(); });
  $("longest").addEventListener("toggle", listLongest);
  const again = () => { readColours(); drawOverview(); draw(); };
  window.addEventListener("resize", again);
  document.addEventListener("themechange", again);
  for (const query of ["(prefers-color-scheme: dark)", "print"]) matchMedia(query).addEventListener("change", again);
  for (const word of ["beforeprint", "afterprint"]) window.addEventListener(word, again);
}
// Shows a timeline in place of the one before, if any: its columns are unpacked once.
let wanted = null, opened = false;
async function openTimeline(packed) {
  wanted = packed;
  packed.parts ??= unpackParts(packed);
  const parts = await packed.parts;
  if (wanted !== packed) return; // another was chosen meanwhile
  m = packed.model ??= buildModel(parts, packed.colours);
  v.hint ??= [...$("details-body").children];
  readColours();
  fillKey();
  fillRows();
  if (!opened) listen();
  opened = true;
  GUTTER = Math.min(240, $("stage").clientWidth * 0.4, Math.max(90, 6.2 * Math.max(...v.every.flatMap((row) => labelOf(row).map((line) => line.length)), 0) + 26));
  v.x = [0, m.end];
  v.picked = -1;
  v.openAll = $("alike").checked = m.origins > 1; // measured ranks are never alike: each stands below its prediction
  v.open.clear();
  $("details-title").textContent = "Click a task";
  $("details-body").replaceChildren(...v.hint);
  drawOverview();
  find();
  chooseRows();
}
