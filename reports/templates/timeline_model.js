// ---- the data of the picture -----------------------------------------------------------------
// m.count intervals, sorted by row, then start; columns of the program's tasks by their id; links with routes.
// Pages of several strategies have intervals only, and neither tasks nor links nor a path.
let m = {};

async function unpackParts({ timeline, tasks, links, path }) {
  const columns = await unpackAll(timeline.columns), id = columns.id || Uint32Array.from({ length: timeline.count }, (_, i) => i);
  const size = tasks?.size ?? id.reduce((most, each) => Math.max(most, each + 1), 0), none = new Uint8Array(size);
  const { size: _, ...packed } = tasks || {};
  const own = { after_count: none, after_back: none, carried_count: none, carried: none, stream_before: none, ...(await unpackAll(packed)) };
  const wires = { names: [], classes: [], bandwidth_bytes_per_s: [], route: none, route_count: [0], ...(await unpackAll(links || {})) };
  const chain = { task: [], words: [], wait_s: [], ...(await unpackAll(path || {})) };
  return { ...columns, id, count: timeline.count, tick: timeline.tick_s, whole: Boolean(tasks), size, own, wires, chain };
}
function buildModel(parts, colours) {
  const { count, size, own, wires, chain } = parts;
  m = { ...parts, colours };
  m.afterStart = starts(own.after_count);
  m.carriedStart = starts(own.carried_count);
  m.routeStart = starts(wires.route_count);
  m.end = 0;
  for (let i = 0; i < count; i++) m.end = Math.max(m.end, m.start[i] + m.duration[i]);
  m.end = Math.max(m.end, 1);
  m.measuredRow = m.rows.map((row) => row.device.endsWith(" measured") || row.stream.endsWith(" measured"));
  // the interval of each task, simulated and measured; -1 where there is none
  m.at = new Int32Array(size).fill(-1);
  m.atMeasured = new Int32Array(size).fill(-1);
  for (let i = 0; i < m.count; i++) (m.measuredRow[m.row[i]] ? m.atMeasured : m.at)[m.id[i]] = i;
  m.step = new Map(Array.from(chain.task, (task, at) => [task, at]));
  m.feeds = feeds();
  m.users = users();
  m.rowStart = new Uint32Array(m.rows.length + 1);
  for (let i = 0; i < m.count; i++) m.rowStart[m.row[i] + 1]++;
  for (let r = 0; r < m.rows.length; r++) m.rowStart[r + 1] += m.rowStart[r];
  return m;
}
function starts(counts) {
  const out = new Uint32Array(counts.length + 1);
  for (let i = 0; i < counts.length; i++) out[i + 1] = out[i] + counts[i];
  return out;
}
const dependencies = (task) => {
  const found = [];
  for (let k = m.afterStart[task]; k < m.afterStart[task + 1]; k++) {
    const code = m.own.after_back[k];
    found.push(task - (code & 1 ? -(code + 1) / 2 : code / 2));
  }
  return found;
};
const carried = (task) => Array.from(m.own.carried.subarray(m.carriedStart[task], m.carriedStart[task + 1]));
// The tasks that depend on each task: the dependencies reversed.
function feeds() {
  const count = new Uint32Array(m.size), all = [];
  for (let task = 0; task < m.size; task++) for (const before of dependencies(task)) { all.push(before, task); count[before]++; }
  const start = starts(count), fill = start.slice(), list = new Uint32Array(all.length / 2);
  for (let k = 0; k < all.length; k += 2) list[fill[all[k]]++] = all[k + 1];
  return (task) => Array.from(list.subarray(start[task], start[task + 1]));
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

// ---- rows: bands of one stream on all devices, then the links by class --------------------------------
function allRows() {
  const list = m.rows.map((row, index) => ({ label: row.label, band: row.stream.replace(/ (simulated|measured)$/, ""), index, link: -1 }));
  const bands = [...new Set(list.map((row) => row.band))];
  list.sort((a, b) => bands.indexOf(a.band) - bands.indexOf(b.band));
  const links = m.wires.names.map((name, link) => ({ label: name, band: `links: ${m.wires.classes[link]}`, index: -1, link }));
  const classes = [...new Set(links.map((row) => row.band))];
  links.sort((a, b) => classes.indexOf(a.band) - classes.indexOf(b.band));
  const busy = links.filter((row) => m.users.start[row.link] < m.users.start[row.link + 1]);
  return [...list, ...busy];
}
// Relative heights of rows: computation is high, links are low, many lanes need more.
function weightOf(row) {
  if (row.link >= 0) return 0.6;
  let lanes = 1;
  for (let i = m.rowStart[row.index]; i < m.rowStart[row.index + 1]; i++) lanes = Math.max(lanes, m.lanes[i]);
  return row.band === "compute" ? 2 : Math.min(12, Math.max(1, lanes / 2));
}
