// ---- timeline ------------------------------------------------------------------------------------
let line = null; // the timeline in view: tasks, rows shown, visible window

async function openTimeline(index) {
  const strategy = data.strategies[index];
  const { count, tick_s, columns } = strategy.timeline;
  strategy.tasks ??= { count, tick_s, ...(await unpackAll(columns)) };
  const tasks = strategy.tasks;
  let end_s = 0;
  for (let i = 0; i < count; i++) end_s = Math.max(end_s, (tasks.start[i] + tasks.duration[i]) * tick_s);
  const [unit, size] = axisUnit(end_s);
  line = { tasks, unit, scale: tick_s / size, end: Math.max(end_s / size, 1e-9), colours: strategy.colours, kinds: tasks.kinds };
  const chosen = $("timeline-rows").value;
  $("timeline-rows").replaceChildren(new Option(`all ${tasks.rows.length}`, ""), rowOptions("stream"), rowOptions("device"));
  $("timeline-rows").value = chosen;
  if ($("timeline-rows").selectedIndex < 0) $("timeline-rows").value = "";
  $("timeline-key").replaceChildren(...tasks.kinds.map(keyOf));
  chooseRows();
}
function keyOf(kind) {
  const key = Object.assign(document.createElement("span"), { className: "key" });
  const colour = document.createElement("i");
  colour.style.background = line.colours[kind];
  key.append(colour, kind.replaceAll("_", " ") + " ");
  key.style.marginRight = "1rem";
  return key;
}
function rowOptions(what) {
  const group = Object.assign(document.createElement("optgroup"), { label: what });
  const words = [...new Set(line.tasks.rows.map((row) => row[what]))].filter((word) => word);
  group.append(...words.map((word) => new Option(word, `${what}:${word}`)));
  return group;
}
function chooseRows() {
  const { rows } = line.tasks, wanted = $("timeline-rows").value;
  const shown = rows.map((_, i) => i).filter((i) => !wanted || ["stream", "device"].some((what) => `${what}:${rows[i][what]}` === wanted));
  // With many devices, bands of one stream read better than devices one by one.
  const streams = rows.map((row) => row.stream);
  if (shown.length > 60) shown.sort((a, b) => streams.indexOf(streams[a]) - streams.indexOf(streams[b]));
  line.place = new Map(shown.map((row, at) => [row, at])); // row number -> height in the picture
  line.x = [0, line.end];
  line.y = [line.place.size - 0.5, -0.5];
  drawTimeline();
}
function tasksInView() {
  const { tasks, place, scale, x, y } = line, seen = [];
  for (let i = 0; i < tasks.count; i++) {
    const row = place.get(tasks.row[i]);
    if (row === undefined || row < y[1] - 0.5 || row > y[0] + 0.5) continue;
    const start = tasks.start[i] * scale;
    if (start <= x[1] && start + tasks.duration[i] * scale >= x[0]) seen.push(i);
  }
  return seen;
}
function describe(i) {
  const t = line.tasks;
  return [t.names[t.name[i]], t.layers[t.layer[i]], t.phases[t.phase[i]].replaceAll("_", " "), t.kinds[t.kind[i]].replaceAll("_", " "),
    t.rows[t.row[i]].label, time(t.start[i] * t.tick_s), time(t.duration[i] * t.tick_s), t.bytes[i] ? bytes(t.bytes[i]) : "–"];
}
function bars(seen) {
  const { tasks, place, scale } = line;
  return line.kinds.map((kind, code) => {
    const mine = seen.filter((i) => tasks.kind[i] === code);
    return {
      type: "bar", orientation: "h", name: kind, hovertemplate: "%{customdata}<extra></extra>",
      base: mine.map((i) => tasks.start[i] * scale), x: mine.map((i) => tasks.duration[i] * scale),
      y: mine.map((i) => place.get(tasks.row[i]) - 0.4 + (0.8 * (tasks.lane[i] + 0.5)) / tasks.lanes[i]),
      width: mine.map((i) => 0.8 / tasks.lanes[i]),
      marker: { color: line.colours[kind], line: { width: 0.5, color: "rgba(128,128,128,.4)" } },
      customdata: mine.map((i) => {
        const [name, layer, phase, , row, start, duration, moved] = describe(i);
        return `<b>${name}</b><br>layer ${layer || "–"} · ${phase} · ${row}<br>starts ${start} · lasts ${duration}<br>${moved === "–" ? "moves nothing" : "moves " + moved}`;
      }),
    };
  });
}
function cells(seen) {
  const { tasks, place, scale, x, kinds } = line, rows = place.size, width = (x[1] - x[0]) / CELLS;
  const busy = new Float32Array(rows * CELLS * kinds.length);
  for (const i of seen) {
    const from = (tasks.start[i] * scale - x[0]) / width, to = from + (tasks.duration[i] * scale) / width;
    for (let cell = Math.max(0, Math.floor(from)); cell < Math.min(CELLS, to); cell++)
      busy[(place.get(tasks.row[i]) * CELLS + cell) * kinds.length + tasks.kind[i]] += Math.min(to, cell + 1) - Math.max(from, cell);
  }
  const z = [], text = [];
  for (let row = 0; row < rows; row++) {
    z.push(new Array(CELLS).fill(null));
    text.push(new Array(CELLS).fill(""));
    for (let cell = 0; cell < CELLS; cell++) {
      const at = (row * CELLS + cell) * kinds.length;
      let most = 0;
      for (let k = 0; k < kinds.length; k++) if (busy[at + k] > most) {
        most = busy[at + k]; z[row][cell] = k; text[row][cell] = kinds[k].replaceAll("_", " ");
      }
    }
  }
  const n = kinds.length, colorscale = kinds.flatMap((kind, k) => [[k / n, line.colours[kind]], [(k + 1) / n, line.colours[kind]]]);
  const labels = new Map([...place].map(([row, at]) => [at, tasks.rows[row].label]));
  return [{ type: "heatmap", z, text, x0: x[0] + width / 2, dx: width, y0: 0, dy: 1, ygap: rows > 150 ? 0 : 1, zmin: -0.5, zmax: n - 0.5, colorscale,
    showscale: false, hoverongaps: false, customdata: z.map((r, at) => r.map(() => labels.get(at))),
    hovertemplate: `%{customdata}<br>mostly %{text}<br>%{x:.4~g} ${line.unit}<extra></extra>` }];
}
function drawTimeline() {
  const { tasks, place, x, y, unit } = line, seen = tasksInView(), exact = seen.length <= MOST_BARS;
  const height = Math.min(700, Math.max(260, place.size * 20 + 60));
  const step = Math.max(1, Math.ceil(((y[0] - y[1]) * 14) / (height - 60)));
  const shown = [...place].filter(([, at]) => at % step === 0);
  const longest = Math.max(4, ...tasks.rows.map((row) => row.label.length));
  line.drawing = true;
  Plotly.react("timeline", exact ? bars(seen) : cells(seen), layout({
    height, barmode: "overlay", dragmode: "zoom", hovermode: "closest", margin: { l: Math.min(260, 7 * longest + 16), r: 12, t: 6, b: 44 },
    xaxis: { range: [...x], title: { text: `time [${unit}]` }, zeroline: false },
    yaxis: { range: [...y], tickvals: shown.map(([, at]) => at), ticktext: shown.map(([row]) => tasks.rows[row].label), zeroline: false, showgrid: false },
  }), { ...CONFIG, doubleClick: false }).then(() => {
    $("timeline").dataset.mode = exact ? "bars" : "cells";
    line.drawing = false;
  });
  const number = (n) => n.toLocaleString("en"), all = `${number(seen.length)} of ${number(tasks.count)} tasks in view`;
  $("timeline-status").textContent = !tasks.count ? "This strategy has no timeline."
    : exact ? `${all}, each drawn as one bar; tasks that run at once in a row share its height.`
    : `${all}: each cell of ${time(((x[1] - x[0]) / CELLS) * (tasks.tick_s / line.scale))} shows the kind that takes most of its time. ` +
      `Zoom in to ${number(MOST_BARS)} tasks or fewer, or choose fewer rows, to see every task as a bar of its own.`;
  const top = seen.sort((a, b) => tasks.duration[b] - tasks.duration[a]).slice(0, 12);
  document.querySelector("#longest tbody").replaceChildren(...top.map((i) => {
    const row = document.createElement("tr");
    describe(i).forEach((word, at) => (row.insertCell().textContent = word) && at < 5 && row.cells[at].classList.add("word"));
    return row;
  }));
}
function zoomed() {
  if (line.drawing) return;
  const { xaxis, yaxis } = $("timeline").layout, all = [line.place.size - 0.5, -0.5];
  const x = xaxis.autorange ? [0, line.end] : xaxis.range, y = yaxis.autorange ? all : yaxis.range;
  line.x = [Math.max(0, x[0]), Math.min(line.end, x[1])];
  line.y = [Math.min(all[0], y[0]), Math.max(all[1], y[1])];
  drawTimeline();
}
function steer(key) {
  const [a, b] = line.x, [low, high] = line.y, middle = (a + b) / 2, width = b - a, rows = low - high;
  const factor = { "+": 0.5, "=": 0.5, "-": 2 }[key], move = { ArrowLeft: -0.25, ArrowRight: 0.25 }[key], climb = { ArrowUp: -0.25, ArrowDown: 0.25 }[key];
  if (factor) line.x = [Math.max(0, middle - (width * factor) / 2), Math.min(line.end, middle + (width * factor) / 2)];
  else if (move) { const by = Math.min(line.end - b, Math.max(-a, move * width)); line.x = [a + by, b + by]; }
  else if (climb && rows < line.place.size) { const by = Math.min(line.place.size - 0.5 - low, Math.max(-0.5 - high, climb * rows)); line.y = [low + by, high + by]; }
  else if (key === "0") { line.x = [0, line.end]; line.y = [line.place.size - 0.5, -0.5]; }
  else return false;
  drawTimeline();
  return true;
}
