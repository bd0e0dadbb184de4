// ---- the cluster ----------------------------------------------------------------------------------------
let use = null, memory = null, ink = {};
const mix = (a, b, share) => `rgb(${a.map((from, i) => Math.round(from + (b[i] - from) * share)).join(",")})`;
function readColours() {
  const probe = document.body.appendChild(Object.assign(document.createElement("i"), { hidden: true }));
  for (const name of ["line", "surface", "transfer", "compute", "quiet", "ink", "mark", "ground"]) {
    probe.style.color = `var(--${name})`;
    ink[name] = getComputedStyle(probe).color.match(/[\d.]+/g).slice(0, 3).map(Number);
  }
  probe.remove();
  $("link-scale").style.background = `linear-gradient(90deg, ${mix(ink.line, ink.transfer, 0)}, ${mix(ink.line, ink.transfer, 1)})`;
  $("busy-scale").style.background = `linear-gradient(90deg, ${mix(ink.surface, ink.compute, 0)}, ${mix(ink.surface, ink.compute, 1)})`;
}
// Wider as well as stronger in colour: the use of a link is seen without telling colours apart.
function drawCluster() {
  const at = Number($("at").value), bins = use.bins, whole = at < 0;
  const row = (i) => (whole ? use.mean[i] : use.share[i * bins + at]) / 200, share = (i) => row(use.like[i]);
  const busy = (i) => (whole ? use.mean_busy[use.device_like[i]] : use.busy[use.device_like[i] * bins + at]) / 200;
  const which = $("which")?.value ?? "", of = (set, get) => (which !== "" && set.length > 1 ? get(set[which]) : set.reduce((sum, each) => sum + get(each), 0) / set.length);
  document.querySelectorAll("#machine .link").forEach((path, i) => {
    const part = of(use.link_sets[i], share);
    path.style.stroke = mix(ink.line, ink.transfer, part);
    path.style.strokeWidth = 1.2 + 4 * part;
  });
  document.querySelectorAll("#machine .device").forEach((circle, i) => { circle.style.fill = mix(ink.surface, ink.compute, 0.8 * of(use.device_sets[i], busy)); });
  $("at-text").textContent = whole ? "mean of the whole iteration" : `${time(at * use.bin_s)} to ${time((at + 1) * use.bin_s)}`;
  fillClasses(share);
  fillBusiest(row);
}
const percent = (part) => (100 * part).toFixed(1);
function line(head, ...cells) {
  const row = document.createElement("tr");
  row.append(Object.assign(document.createElement("th"), { scope: "row", className: "word", textContent: head }));
  for (const text of cells) row.insertCell().textContent = text;
  return row;
}
function fillClasses(share) {
  const found = use.classes.map((name) => ({ name, count: 0, sum: 0, most: 0 }));
  use.link_class.forEach((at, i) => {
    const part = share(i), one = found[at];
    one.count += 1;
    one.sum += part;
    one.most = Math.max(one.most, part);
  });
  const rows = found.map(({ name, count, sum, most }) => ({ name: `${name} × ${count}`, mean: sum / count, most }));
  document.querySelector("#classes tbody").replaceChildren(...rows.sort((a, b) => b.most - a.most).map(({ name, mean, most }) => line(name, percent(mean), percent(most))));
}
function fillBusiest(share) { // links of one class that are used alike share a line
  const groups = new Map(), count = use.links.map(() => 0);
  for (const row of use.like) count[row] += 1;
  for (const i of use.links.map((_, i) => i).filter((i) => share(i) > 0)) {
    const key = `${use.link_class[use.first[i]]} ${share(i)} ${use.moved[i]}`;
    groups.set(key, [...(groups.get(key) || []), i]);
  }
  const order = [...groups.values()].sort((a, b) => share(b[0]) - share(a[0])).slice(0, 12);
  document.querySelector("#busiest tbody").replaceChildren(...order.map((of) => {
    const alike = of.reduce((sum, i) => sum + count[i], 0) - 1;
    return line(use.links[of[0]] + (alike ? ` and ${alike} alike` : ""), percent(share(of[0])), use.moved[of[0]]);
  }));
}
function play() {
  const on = $("play").getAttribute("aria-pressed") === "false";
  $("play").setAttribute("aria-pressed", on);
  $("play").textContent = on ? "stop" : "play";
  const step = () => {
    if ($("play").getAttribute("aria-pressed") === "false") return;
    $("at").value = (Number($("at").value) + 1) % use.bins;
    drawCluster();
    setTimeout(step, 80);
  };
  step();
}

// ---- memory ---------------------------------------------------------------------------------------------
function plane(canvas) {
  const ratio = window.devicePixelRatio || 1, width = canvas.clientWidth, height = canvas.clientHeight;
  canvas.width = Math.max(1, width * ratio);
  canvas.height = Math.max(1, height * ratio);
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.font = "11px system-ui, sans-serif";
  return [context, width, height];
}
const BELOW = 24;
let LEFT = 150; // room for the names of devices
const SIZES = [["TiB", 2 ** 30], ["GiB", 2 ** 20], ["MiB", 2 ** 10], ["KiB", 1]];
const sized = (kib) => figures(kib, SIZES);
function timeAxis(context, width, height) {
  const [unit, size] = axisUnit(memory.span_s), span = memory.span_s / size, power = 10 ** Math.floor(Math.log10(span / 6));
  const step = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= span / 8);
  context.fillStyle = mix(ink.quiet, ink.quiet, 0);
  context.textAlign = "center";
  const fits = (at) => LEFT + ((width - LEFT) * at) / span < width - 40;
  for (let at = 0; fits(at); at += step) context.fillText(Number(at.toPrecision(6)).toLocaleString("en"), LEFT + ((width - LEFT) * at) / span, height - 8);
  context.textAlign = "right";
  context.fillText(`[${unit}]`, width - 2, height - 8);
}
function drawMap() {
  const [context, width, height] = plane($("memory-map")), rows = memory.names.length, wide = Math.floor(width - LEFT);
  if (wide < 20) return;
  const image = context.createImageData(wide, rows), low = ink.surface, high = ink.compute;
  for (let row = 0; row < rows; row++) {
    const most = memory.most, from = memory.start[row], to = memory.start[row + 1];
    for (let k = from; k < to; k++) { // a step colours from its time on; the highest of a column is seen
      const a = Math.floor((memory.time[k] / 1e9) * wide), b = k + 1 < to ? Math.floor((memory.time[k + 1] / 1e9) * wide) : wide - 1;
      const share = Math.min(1, memory.held_kib[k] / most);
      for (let cell = a; cell <= Math.min(b, wide - 1); cell++) {
        const at = (row * wide + cell) * 4;
        if (image.data[at + 3] && share <= memory.shown[row * wide + cell]) continue;
        memory.shown[row * wide + cell] = share;
        for (let c = 0; c < 3; c++) image.data[at + c] = low[c] + (high[c] - low[c]) * share;
        image.data[at + 3] = 255;
      }
    }
  }
  const sheet = new OffscreenCanvas(wide, rows);
  sheet.getContext("2d").putImageData(image, 0, 0);
  context.imageSmoothingEnabled = false;
  context.drawImage(sheet, LEFT, 0, wide, height - BELOW);
  const each = (height - BELOW) / rows, every = Math.ceil(14 / each), chosen = Number($("memory-device").value);
  context.textAlign = "right";
  memory.names.forEach((name, row) => {
    if (row % every) return;
    context.fillStyle = mix(ink.ink, ink.ink, 0);
    context.fillText(name, LEFT - 6, row * each + Math.max(each / 2 + 4, 10));
  });
  context.strokeStyle = mix(ink.mark, ink.mark, 0);
  context.lineWidth = 2;
  context.strokeRect(LEFT + 1, chosen * each, wide - 2, Math.max(each, 2));
  timeAxis(context, width, height);
}
function drawLine() {
  const [context, width, height] = plane($("memory-line")), device = Number($("memory-device").value), wide = width - LEFT;
  const from = memory.start[device], to = memory.start[device + 1], capacity = memory.capacity[device] / 1024;
  let peak = 0, when = 0;
  for (let k = from; k < to; k++) if (memory.held_kib[k] > peak) { peak = memory.held_kib[k]; when = memory.time[k]; }
  const top = Math.max(peak * 1.15, Math.min(capacity * 1.05, peak * 2)), y = (kib) => 8 + (height - BELOW - 8) * (1 - kib / top);
  const [unit, size] = SIZES.find(([, kib]) => top >= kib) || SIZES.at(-1), power = 10 ** Math.floor(Math.log10(top / size / 4));
  const step = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= top / size / 5);
  context.textAlign = "right";
  for (let at = 0; at * size <= top; at += step) {
    context.fillStyle = mix(ink.line, ink.line, 0);
    context.fillRect(LEFT, y(at * size), wide, 1);
    context.fillStyle = mix(ink.quiet, ink.quiet, 0);
    context.fillText(`${Number(at.toPrecision(6))} ${unit}`, LEFT - 6, y(at * size) + 4);
  }
  context.beginPath();
  context.moveTo(LEFT, y(0));
  for (let k = from; k < to; k++) {
    const x = LEFT + (memory.time[k] / 1e9) * wide;
    context.lineTo(x, y(k > from ? memory.held_kib[k - 1] : memory.held_kib[k]));
    context.lineTo(x, y(memory.held_kib[k]));
  }
  context.lineTo(width, y(memory.held_kib[to - 1]));
  context.lineTo(width, y(0));
  context.fillStyle = mix(ink.surface, ink.compute, 0.35);
  context.strokeStyle = mix(ink.compute, ink.compute, 0);
  context.lineWidth = 1.5;
  context.fill();
  context.stroke();
  if (capacity <= top) {
    context.setLineDash([5, 4]);
    context.strokeStyle = mix(ink.mark, ink.mark, 0);
    context.beginPath();
    context.moveTo(LEFT, y(capacity));
    context.lineTo(width, y(capacity));
    context.stroke();
    context.setLineDash([]);
  }
  timeAxis(context, width, height);
  $("memory-status").textContent = `most ${sized(peak)} of ${sized(capacity)} (${((100 * peak) / capacity).toFixed(1)} %), first at ${time((when / 1e9) * memory.span_s)}`;
}
function drawAll() {
  readColours();
  drawCluster();
  drawMemory();
}
function drawMemory() {
  memory.shown = new Float32Array(memory.names.length * Math.max(1, $("memory-map").clientWidth));
  drawMap();
  drawLine();
}
async function start() {
  const { bin_s, bins, moved_unit, ...packed } = data.cluster, { span_s, fullest, ...steps } = data.memory;
  use = { bin_s, bins, ...(await unpackAll(packed)) };
  memory = { span_s, ...(await unpackAll(steps)) };
  memory.start = [0];
  memory.most = memory.held_kib.reduce((most, kib) => Math.max(most, kib), 1);
  for (const count of memory.count) memory.start.push(memory.start.at(-1) + count);
  $("memory-device").replaceChildren(...memory.names.map((name, i) => new Option(name, i)));
  $("memory-device").value = fullest;
  LEFT = 14 + 6.2 * Math.max(9, ...memory.names.map((name) => name.length));
  drawAll();
  $("at").addEventListener("input", drawCluster);
  $("play").addEventListener("click", play);
  $("which")?.addEventListener("change", drawCluster);
  $("memory-device").addEventListener("change", drawMemory);
  $("memory-map").addEventListener("click", (event) => {
    const box = $("memory-map").getBoundingClientRect(), row = Math.floor(((event.clientY - box.top) / (box.height - BELOW)) * memory.names.length);
    if (row >= 0 && row < memory.names.length) { $("memory-device").value = row; drawMemory(); }
  });
  for (const word of ["resize", "beforeprint", "afterprint"]) window.addEventListener(word, drawAll);
  document.addEventListener("themechange", drawAll);
  for (const query of ["(prefers-color-scheme: dark)", "print"]) matchMedia(query).addEventListener("change", drawAll);
  document.body.dataset.ready = "yes";
}
start();
