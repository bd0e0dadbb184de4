// ---- the drawn cluster, and the changes of its links and devices --------------------------------------------
const edits = new Map();
const bench = { cluster: null, picked: "", alike: new Map() };
const svg = (tag, attributes) => {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
};
const factor = (value) => 10 ** (Number(value) / 100);
const position = (times) => Math.max(-100, Math.min(100, Math.round(100 * Math.log10(times))));
const short = (value) => String(Number(Number(value).toPrecision(3)));

function showCluster(values) {
  bench.cluster = values;
  const { drawing, devices, nodes } = values;
  $("cluster-title").textContent = `The cluster: ${devices.length} device${devices.length > 1 ? "s" : ""} in ${nodes} node${nodes > 1 ? "s" : ""}`;
  $("machine").replaceChildren();
  $("drawn-note").hidden = !drawing;
  if (drawing) drawMachine(drawing);
  fillLinks();
  const chosen = $("device").value;
  $("device").replaceChildren(...devices.map((each) => new Option(`${each.name} (${each.profile})`, each.name)), new Option(`all ${devices.length} devices`, "*"));
  $("device").value = [...$("device").options].some((each) => each.value === chosen) ? chosen : devices[0].name;
  showSliders();
  markChanges();
  perDevice();
}
// What a link or device of the drawing stands for: itself, and those at its place in machines that are equal.
function alikeOf(drawing) {
  const { links, devices } = bench.cluster, shown = drawing.vertices.filter((each) => each[4]);
  bench.alike = new Map(drawing.links.map(([, name], at) => [name, drawing.link_sets[at].map((each) => links[each].name)]));
  shown.forEach(([, , , name], at) => bench.alike.set(name, drawing.device_sets[at].map((each) => devices[each].name)));
}
function drawMachine(drawing) {
  const { width, height, boxes, vertices, links } = drawing, machine = $("machine"), drawn = [];
  alikeOf(drawing);
  const many = (name) => { const more = bench.alike.get(name)?.length - 1; return more > 0 ? ` and ${more} alike` : ""; };
  machine.setAttribute("viewBox", `0 0 ${width} ${height}`);
  machine.style.maxWidth = `${width * 1.7}px`;
  machine.style.minWidth = `${Math.min(width, 540)}px`;
  for (const [x, y, wide, high, name] of boxes) {
    drawn.push(svg("rect", { class: "box", x, y, width: wide, height: high, rx: 6 }));
    drawn.push(Object.assign(svg("text", { class: "title", x: x + 3, y: y - 3 }), { textContent: name }));
  }
  for (const [d, name] of links) drawn.push(svg("path", { class: "link", d, "data-link": name }));
  for (const [d, name, kind] of links) {
    const hit = svg("path", { class: "hit", d, "data-link": name });
    hit.append(Object.assign(svg("title", {}), { textContent: `${name}${many(name)} (${kind})` }));
    drawn.push(hit);
  }
  for (const [x, y, word, name, device] of vertices) {
    const mark = device ? svg("circle", { class: "device", cx: x, cy: y, r: 11, "data-device": name }) : svg("rect", { class: "switch", x: x - 17, y: y - 8, width: 34, height: 16, rx: 3 });
    mark.append(Object.assign(svg("title", {}), { textContent: name + many(name) }));
    drawn.push(mark, Object.assign(svg("text", { x, y: y + 3 }), { textContent: word }));
  }
  machine.append(...drawn);
}
function fillLinks() {
  const chosen = $("link").value, { classes, links } = bench.cluster;
  const options = classes.map((each) => new Option(`all ${each.count} ${each.name}, ${short(each.gbyte_per_s)} GB/s`, each.name));
  const one = document.createElement("optgroup");
  one.label = "one link";
  one.append(...links.slice(0, 3000).map((each) => new Option(each.name, `=${each.name}`)));
  $("link").replaceChildren(...options, one);
  const busiest = classes.find((each) => /fdr|ib|net|eth|edr|hdr|ndr/.test(each.name)) || classes.at(-1);
  $("link").value = [...$("link").options].some((each) => each.value === chosen) ? chosen : busiest.name;
}
// What the two sliders of links and the one of devices change, as names of assignments; scale is what an address may hold.
function linkNames() {
  const chosen = $("link").value, one = chosen.startsWith("="), which = one ? chosen.slice(1) : chosen;
  return { one, which, bandwidth: `link.${which}.${one ? "bandwidth_factor" : "bandwidth_gbyte_per_s"}`, latency: `link.${which}.latency_factor`, scale: one ? "" : `link.${which}.bandwidth_factor` };
}
const speedName = () => `device.${$("device").value}.speed`;
const linkClass = (which) => bench.cluster.classes.find((each) => each.name === which);

function showSliders() {
  const { one, which, bandwidth, latency, scale } = linkNames(), was = one ? 1 : linkClass(which).was_gbyte_per_s;
  const now = Number(edits.get(bandwidth) ?? was) * Number(edits.get(scale) ?? 1), slow = Number(edits.get(latency) ?? 1), speed = Number(edits.get(speedName()) ?? 1);
  const set = (name, times, value, words) => {
    $(name).value = position(times);
    $(name).setAttribute("aria-valuetext", words);
    if (document.activeElement !== $(`${name}-number`)) $(`${name}-number`).value = short(value);
  };
  $("bandwidth-unit").textContent = one ? "×" : "GB/s";
  $("bandwidth-number").setAttribute("aria-label", one ? "Bandwidth, times what it was" : "Bandwidth in GB/s");
  set("bandwidth", now / was, now, `${short(now)} ${one ? "times" : "GB/s"}`);
  set("latency", slow, slow, `${short(slow)} times`);
  set("speed", speed, speed, `${short(speed)} times`);
}
function setEdit(name, value, usual) {
  if (Number(value) === usual) edits.delete(name);
  else edits.set(name, String(value));
}
function listenToSliders() {
  const changed = () => { showSliders(); markChanges(); clusterChanged(); };
  const bandwidth = (value) => { const { one, which, bandwidth: name, scale } = linkNames(); edits.delete(scale); setEdit(name, value, one ? 1 : Number(short(linkClass(which).was_gbyte_per_s))); };
  const latency = (value) => setEdit(linkNames().latency, value, 1), speed = (value) => setEdit(speedName(), value, 1);
  const was = () => { const { one, which } = linkNames(); return one ? 1 : linkClass(which).was_gbyte_per_s; };
  for (const [name, set, base] of [["bandwidth", bandwidth, was], ["latency", latency, () => 1], ["speed", speed, () => 1]]) {
    $(name).addEventListener("input", () => { if (bench.cluster) { set(short(base() * factor($(name).value))); changed(); } });
    $(`${name}-number`).addEventListener("input", () => {
      const value = $(`${name}-number`).value;
      if (bench.cluster && value !== "" && (Number(value) > 0 || name === "latency")) { set(value); changed(); }
    });
    for (const part of [name, `${name}-number`]) $(part).addEventListener("change", drawApart);
    $(`${name}-number`).addEventListener("blur", () => bench.cluster && showSliders());
  }
  $("link").addEventListener("change", () => { showSliders(); markChanges(); });
  $("device").addEventListener("change", () => { showSliders(); markChanges(); });
  $("machine").addEventListener("click", (event) => {
    const { link, device } = event.target.dataset;
    if (link) $("link").value = event.shiftKey ? `=${link}` : bench.cluster.links.find((each) => each.name === link).class;
    if (device) $("device").value = device;
    if (link || device) { showSliders(); markChanges(); }
  });
  $("reset").addEventListener("click", async () => { edits.clear(); await readCluster(); clusterChanged(); });
  $("add-change").addEventListener("click", addChange);
  $("change").addEventListener("keydown", (event) => { if (event.key === "Enter") { event.preventDefault(); addChange(); } });
}
// A change of one link or device sets its machine apart from those that it was equal to.
function drawApart() {
  if (bench.cluster && [...bench.alike.values()].some((alike) => alike.length > 1)) readCluster();
}
async function addChange() {
  const [name, value] = $("change").value.split(/=(.*)/s).map((part) => part?.trim());
  if (!name || !value) return problem("A change looks like link.CLASS.bandwidth_factor=0.5, device.NAME.speed=0.5 or link.NAME.failed=1.");
  edits.set(name, value);
  if (await readCluster()) { $("change").value = ""; clusterChanged(); } else { edits.delete(name); markChanges(); }
}
// Draws what is changed, and lists it; a change in the list can be taken back.
function markChanges() {
  const { which, one } = linkNames(), device = $("device").value, pattern = (text) => new RegExp(`^${text.split("*").map((part) => part.replace(/[.+?^${}()|[\]\\]/g, "\\$&")).join(".*")}$`);
  const rules = [...edits.keys()].map((name) => name.match(/^(link|device)\.(.*)\.[a-z_]+$/)).filter(Boolean).map(([, of, what]) => [of, pattern(what)]);
  const hit = (of, ...names) => rules.some(([kind, rule]) => kind === of && names.some((name) => rule.test(name)));
  const classOf = new Map(bench.cluster.links.map((each) => [each.name, each.class]));
  document.querySelectorAll("#machine .link").forEach((path) => {
    const { link } = path.dataset;
    const alike = bench.alike.get(link);
    path.classList.toggle("changed", hit("link", ...alike, classOf.get(link)));
    path.classList.toggle("picked", one && alike.includes(which));
  });
  document.querySelectorAll("#machine .device").forEach((circle) => {
    const alike = bench.alike.get(circle.dataset.device);
    circle.classList.toggle("changed", hit("device", ...alike));
    circle.classList.toggle("picked", alike.includes(device) || device === "*");
  });
  $("changes").replaceChildren(...[...edits].map(([name, value]) => {
    const item = cell("li", `${name} = ${value} `), off = cell("button", "×", "", { type: "button", title: "take back" });
    off.setAttribute("aria-label", `Take back ${name}`);
    off.addEventListener("click", async () => { edits.delete(name); $("reset").focus(); await readCluster(); clusterChanged(); });
    item.append(off);
    return item;
  }));
  if (!edits.size) $("changes").replaceChildren(cell("li", "none "));
  $("reset").disabled = !edits.size;
  remember();
}
function showUse(use) {
  document.querySelectorAll("#machine .link").forEach((path) => {
    const alike = bench.alike.get(path.dataset.link);
    path.style.setProperty("--use", alike.reduce((sum, name) => sum + (use[name] ?? 0), 0) / alike.length);
  });
}
// The drawing of a subject's cluster; null where another was asked for since.
let reading = 0;
async function drawnCluster(asked) {
  const number = ++reading, values = await ask("POST", "api/cluster", asked);
  return number === reading ? values : null;
}
async function readCluster() {
  return Boolean(await attempt(async () => {
    const values = await drawnCluster(subject());
    if (values) showCluster(values);
    return values;
  }));
}
// The sliders show the links and the device that were changed last.
function pickChanged() {
  for (const name of edits.keys()) {
    const [, of, which] = name.match(/^(link|device)\.(.*)\.[a-z_]+$/) ?? [], options = of ? [...$(of).options].map((each) => each.value) : [];
    for (const value of [which, `=${which}`]) if (options.includes(value)) $(of).value = value;
  }
  showSliders();
  markChanges();
}
