// ---- the data of the picture -----------------------------------------------------------------
// m.count tasks with their times in ticks; rows of entries, each a task in a lane; columns of the program's tasks by
// their id; links with routes.  Pages of several strategies have tasks only, and neither links nor a path.
let m = {};

async function unpackParts({ timeline, tasks, links, path }) {
  const columns = await unpackAll(timeline.columns), id = columns.id || Uint32Array.from({ length: timeline.count }, (_, i) => i);
  const size = tasks?.size ?? id.reduce((most, each) => Math.max(most, each + 1), 0), none = new Uint8Array(size);
  const { size: _, ...packed } = tasks || {};
  const own = { after_count: none, after_back: none, carried_count: none, carried: none, stream_before: none, ...(await unpackAll(packed)) };
  const wires = { names: [], classes: [], bandwidth_bytes_per_s: [], route: none, route_count: [0], alike: [], ...(await unpackAll(links || {})) };
  const chain = { task: [], words: [], wait_s: [], ...(await unpackAll(path || {})) };
  return { ...columns, id, count: timeline.count, tick: timeline.tick_s, origins: timeline.origins, whole: Boolean(tasks), size, own, wires, chain };
}
function buildModel(parts, colours) {
  const { count, size, own, wires, chain } = parts;
  m = { ...parts, colours };
  m.afterStart = starts(own.after_count);
  m.carriedStart = starts(own.carried_count);
  m.routeStart = starts(wires.route_count);
  m.end = 1;
  for (let i = 0; i < count; i++) m.end = Math.max(m.end, m.start[i] + m.duration[i]);
  m.rowStart = starts(m.row_count);
  m.entryRow = new Uint32Array(m.item.length);
  for (let row = 0; row < m.rows.length; row++) m.entryRow.fill(row, m.rowStart[row], m.rowStart[row + 1]);
  m.entries = reversed(m.item, count);
  m.measured = (i) => m.origins > 1 && (m.device[i] ? m.devices[m.device[i] - 1].endsWith(" measured") : m.rows[m.entryRow[m.entries(i)[0]]].label.endsWith(" measured"));
  // the interval of each task, simulated and measured; -1 where there is none
  m.at = new Int32Array(size).fill(-1);
  m.atMeasured = new Int32Array(size).fill(-1);
  for (let i = 0; i < count; i++) (m.measured(i) ? m.atMeasured : m.at)[m.id[i]] = i;
  m.cause = Int32Array.from(m.before, (code, i) => (code ? i - signed(code) : -1));
  m.freed = reversed(m.cause, count);
  m.step = new Map(Array.from(chain.task, (task, at) => [task, at]));
  m.feeds = feeds();
  m.users = users();
  return m;
}
function starts(counts) {
  const out = new Uint32Array(counts.length + 1);
  for (let i = 0; i < counts.length; i++) out[i + 1] = out[i] + counts[i];
  return out;
}
// By value, the indices at which it stands; negative values stand for nothing.
function reversed(values, size) {
  const count = new Uint32Array(size);
  for (const value of values) if (value >= 0) count[value]++;
  const start = starts(count), fill = start.slice(), list = new Uint32Array(start[size]);
  for (let k = 0; k < values.length; k++) if (values[k] >= 0) list[fill[values[k]]++] = k;
  return (value) => list.subarray(start[value], start[value + 1]);
}
const dependencies = (task) => {
  const found = [];
  for (let k = m.afterStart[task]; k < m.afterStart[task + 1]; k++) found.push(task - signed(m.own.after_back[k]));
  return found;
};
const carried = (task) => Array.from(m.own.carried.subarray(m.carriedStart[task], m.carriedStart[task + 1]));
// The tasks that depend on each task: the dependencies reversed.
function feeds() {
  const late = [], early = [];
  for (let task = 0; task < m.size; task++) for (const before of dependencies(task)) { early.push(before); late.push(task); }
  const places = reversed(early, m.size);
  return (task) => Array.from(places(task), (k) => late[k]);
}
// The simulated intervals that load each link, with the share of it that they use: work x weight / (time x bandwidth).
function users() {
  const { route, route_link, route_weight, bandwidth_bytes_per_s: speed, work_bytes } = m.wires;
  const count = new Uint32Array(m.wires.names.length);
  const each = (see) => {
    for (let task = 0; task < m.size; task++) {
      const i = m.at[task];
      if (i < 0 || !m.duration[i]) continue;
      for (let k = m.routeStart[route[task]]; k < m.routeStart[route[task] + 1]; k++) see(i, task, route_link[k], route_weight[k]);
    }
  };
  each((i, task, link) => count[link]++);
  const start = starts(count), fill = start.slice(), interval = new Uint32Array(start.at(-1)), share = new Float32Array(start.at(-1));
  each((i, task, link, weight) => {
    interval[fill[link]] = i;
    share[fill[link]++] = (work_bytes[task] * weight) / (m.duration[i] * m.tick * speed[link]);
  });
  return { start, interval, share };
}

// ---- words ---------------------------------------------------------------------------------------------
const nameOf = (i) => m.names[m.name[i]].replace("[#]", `[${m.part[i]}]`).replace("(@)", `(${Math.floor((m.device[i] - 1) / m.origins)} to ${Math.floor((m.peer[i] - 1) / m.origins)})`);
const DERIVATIVES = { forward: "", activation_gradient: " dX", weight_gradient: " dW", bias_gradient: " db", epilogue_gradient: " epilogue", update: " update" };
// What a bar says: the layer and, as in its formulas, what is computed of it; conv1 dW.
function barName(i) {
  const derivative = DERIVATIVES[m.kinds[m.kind[i]]], name = m.names[m.name[i]];
  return derivative === undefined || !m.layers[m.layer[i]] ? nameOf(i) : m.layers[m.layer[i]] + derivative + (name.split("[#]")[1] || "");
}
function rowOf(i) {
  const [from, to] = [m.device[i], m.peer[i]].map((device) => (device ? m.devices[device - 1] : ""));
  if (from) return to ? `${from} to ${to}` : from;
  const rows = m.entries(i);
  return rows.length > 1 ? `${number(rows.length)} devices, from ${m.devices[m.rows[m.entryRow[rows[0]]].device]} on` : m.rows[m.entryRow[rows[0]]].label;
}

// ---- rows: each device with its communication below it, then the links by class ---------------------------
// Devices and links that look alike are one row, until they are opened.
function allRows() {
  const size = new Map();
  const joined = (key) => size.set(key, (size.get(key) || 0) + 1);
  m.devices.forEach((_, device) => joined(m.alike[device]));
  const list = m.rows.map((row, index) => {
    const { device } = row, group = device < 0 ? -1 : m.alike[device];
    return { label: row.label, name: device < 0 ? row.label : m.devices[device], band: row.stream.replace(/ (simulated|measured)$/, ""),
      index, link: -1, owner: device, group, alike: device < 0 ? 1 : size.get(group), leads: device < 0 || index === 0 || m.rows[index - 1].device !== device };
  });
  const linkSize = new Map();
  m.wires.names.forEach((_, link) => linkSize.set(m.wires.alike[link], (linkSize.get(m.wires.alike[link]) || 0) + 1));
  const links = m.wires.names.map((name, link) => ({ label: name, name, band: `links: ${m.wires.classes[link]}`, index: -1, link, owner: link,
    group: m.wires.alike[link], alike: linkSize.get(m.wires.alike[link]), leads: true }));
  const classes = [...new Set(links.map((row) => row.band))];
  links.sort((a, b) => classes.indexOf(a.band) - classes.indexOf(b.band) || a.group - b.group || a.link - b.link);
  return [...list, ...links.filter((row) => m.users.start[row.link] < m.users.start[row.link + 1])];
}
const groupKey = (row) => `${row.link >= 0 ? "link" : "device"} ${row.group}`;
const isHidden = (row) => row.alike > 1 && row.owner !== row.group && !v.open.has(groupKey(row)) && !v.openAll;
const isClosed = (row) => row.alike > 1 && row.owner === row.group && !v.open.has(groupKey(row)) && !v.openAll;
// Relative heights of rows: computation is high, links are low, many lanes need more.
function weightOf(row, crowded) {
  if (row.link >= 0) return row.alike > 1 ? 0.9 : 0.6;
  let lanes = 1;
  for (let k = m.rowStart[row.index]; k < m.rowStart[row.index + 1]; k++) lanes = Math.max(lanes, m.lanes[k]);
  return row.band === "compute" ? 2 : Math.min(crowded ? 2.5 : 12, Math.max(1, lanes / 2));
}
