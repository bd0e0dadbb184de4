// ---- the comparison as it arrives, and again after every change ---------------------------------------------
// asked: the subject whose comparison is shown or under way; compared: the same once it is complete; shown: the strategy that was picked.
const shownJob = { id: null, searched: false, asked: "", compared: "", since: 0, names: [], fresh: new Set(), shown: "", next: null };

function showTable(values) {
  $("results").hidden = false;
  $("answer").textContent = values.headline;
  $("answer").classList.remove("stale");
  showRemarks(values);
  const heads = [cell("th", "strategy", "word", { scope: "col" }), ...values.columns.map((column) => {
    const head = cell("th", column.title, "", { scope: "col", title: column.meaning });
    head.dataset.title = column.title;
    if (column.unit) head.append(" ", cell("span", `[${column.unit}]`, "unit"));
    return head;
  })];
  $("comparison").tHead.replaceChildren(rowOfCells(heads));
  $("comparison").tBodies[0].replaceChildren(...values.strategies.map((name, at) => {
    const row = rowOfCells([cell("th", name, "word", { scope: "row" }), ...values.columns.map((column) => cell("td", column.texts[at]))]);
    row.classList.toggle("winner", name === values.winner);
    row.dataset.name = name;
    return row;
  }));
  showLadder(values);
  fillShown(values.strategies, values.winner);
}
// The reason of the winner stands at the top, those of the others below the table.
function showRemarks({ pace, refused, notes, undecided, winner }) {
  const first = pace.filter((line) => line.startsWith(`${winner} `) || line.startsWith(`${winner}:`) || line.startsWith("To be faster"));
  const top = [...first, ...Object.entries(refused).map(([name, why]) => `${name} was refused: ${why}`), ...(undecided ? [undecided] : [])];
  for (const [id, lines] of [["remarks", top], ["reasons", [...pace.filter((line) => !first.includes(line)), ...notes]]]) {
    $(id).replaceChildren(...lines.map((line) => cell("li", line)));
    $(id).hidden = !lines.length;
  }
}
function showLadder({ ladder }) {
  Plotly.react("ladder", ladder.data, { ...ladder.layout, hoverlabel: { align: "left" } }, CONFIG);
}
// The first numbers after a change: times and ladder; the other cells follow and are quiet until then.
function showTimes(values) {
  const heads = [...$("comparison").tHead.rows[0].cells].map((head) => head.dataset.title);
  $("answer").classList.add("stale");
  for (const row of $("comparison").tBodies[0].rows) {
    const times = values.times[row.dataset.name];
    row.classList.toggle("stale", !shownJob.fresh.has(row.dataset.name));
    row.classList.toggle("winner", row.dataset.name === values.winner);
    for (const [title, text] of Object.entries(times ?? {})) row.cells[heads.indexOf(title)].textContent = text;
  }
  showLadder(values);
}
function fillShown(names, winner) {
  if (names.join() === shownJob.names.join()) return;
  shownJob.names = names;
  const chosen = names.includes(shownJob.shown) ? shownJob.shown : winner;
  $("shown").replaceChildren($("shown").querySelector("legend"), ...names.map((name) => {
    const label = document.createElement("label"), radio = cell("input", "", "", { type: "radio", name: "strategy", value: name, checked: name === chosen });
    label.append(radio, cell("span", name));
    radio.addEventListener("change", () => { shownJob.shown = name; remember(); askTimeline(); });
    return label;
  }));
}
const shownName = () => document.querySelector("#shown input:checked")?.value ?? "";

function showTimeline(values) {
  if (values.name !== shownName()) return Promise.resolve(); // of a result that is known, with another one shown
  document.querySelectorAll(".chosen").forEach((part) => { part.textContent = values.name; });
  showUse(values.use);
  document.body.dataset.chosen = values.name;
  return openTimeline(values);
}
function askTimeline() {
  if (document.body.dataset.state !== "idle") return undefined; // what runs brings one, or is followed by one
  return begin("timeline", subject(), { shown: shownName(), compared: JSON.parse(shownJob.compared).edits }, (kind, values) => {
    if (kind === "timeline") showTimeline(values);
    if (kind === "failed") problem(values);
  });
}
function held(begun, values) {
  const { searched } = values;
  Object.assign(shownJob, { id: job.id, searched });
  $("keep-button").disabled = false;
  $("origin").textContent = searched ? "" : "The strategies chosen before the change, priced and simulated again with it; Compare chooses them anew.";
  $("command").textContent = begun.command;
}
// Compares from the beginning: every strategy is chosen for this cluster.
function compareAll(chosen = subject(), shown = "") {
  const asked = unpriced(chosen), wanted = JSON.stringify(chosen), about = subjectLine();
  let complete = null;
  Object.assign(shownJob, { names: [], shown, asked, compared: "", next: null });
  clearTimeout(waiting);
  remember("pushState");
  $("cancel").hidden = false;
  problem("");
  $("status-line").textContent = "Beginning …";
  const begun = begin("compare", chosen, {}, (kind, values, start) => {
    if (kind === "progress") {
      const [label, done, total] = values;
      Object.assign($("progress"), { hidden: false, max: Math.max(total, 1), value: done });
      $("status-line").textContent = `${label} (${done} of ${total})`;
    } else if (kind === "table") {
      showTable(values);
      $("subject-line").textContent = about;
      if (values.complete) { complete = values; held(start, values); }
    } else if (kind === "done") {
      $("status-line").textContent = "Compared. Drag a bandwidth or a speed: ladder and timeline follow.";
      shownJob.compared = asked;
      document.body.dataset.repriced = wanted;
      document.body.dataset.compared = complete ? complete.winner : "";
      const next = shownJob.next;
      shownJob.next = null;
      if (JSON.stringify(subject()) !== wanted) clusterChanged();
      else if (next) next();
      else askTimeline();
    } else {
      shownJob.asked = "";
      remember();
      $("status-line").textContent = kind === "cancelled" ? "Cancelled." : "";
      if (kind === "failed") problem(values);
    }
  });
  $("cancel").hidden = false;
  return begun;
}
// Shows a comparison again, with the changes since: the server knows both, or computes them anew.
function openResults(asked, shown) {
  if (shownJob.compared !== unpriced(asked)) return compareAll(asked, shown);
  Object.assign(shownJob, { asked: shownJob.compared, shown });
  const name = shownJob.names.includes(shown) ? shown : document.body.dataset.compared;
  document.querySelectorAll("#shown input").forEach((each) => { each.checked = each.value === name; });
  return document.body.dataset.repriced === JSON.stringify(subject()) ? askTimeline() : clusterChanged();
}
function leaveResults() {
  cancelJob();
  Object.assign(shownJob, { asked: "", compared: "", names: [], shown: "" });
  for (const id of ["results", "remarks"]) $(id).hidden = true;
  $("answer").textContent = BEGIN;
  $("subject-line").textContent = "Orrery workbench";
  $("keep-button").disabled = true;
  $("status-line").textContent = "";
}
// Prices and replays the same strategies with the changes; the latest change wins.
let waiting = 0;
function clusterChanged() {
  clearTimeout(waiting);
  if (!shownJob.compared || document.body.dataset.state === "compare") return;
  shownJob.since ||= performance.now();
  document.body.dataset.wanted = JSON.stringify(subject());
  waiting = setTimeout(reprice, 60);
}
const isCompared = () => shownJob.asked !== "" && sameBut(JSON.stringify(subject())) === sameBut(shownJob.asked);
const unpriced = (values) => JSON.stringify({ ...values, price: null });
const sameBut = (text) => unpriced({ ...JSON.parse(text), edits: {} });
function reprice() {
  const now = JSON.stringify(subject()), since = shownJob.since;
  shownJob.since = 0;
  if (!isCompared()) {
    $("status-line").textContent = "Another network, cluster, batch or choice of strategies: press Compare.";
    return;
  }
  shownJob.fresh = new Set();
  let drawn = "";
  const seconds = () => `${((performance.now() - since) / 1000).toFixed(2)} s`, times = {};
  const say = () => { $("status-line").textContent = ["ladder", "timeline"].filter((word) => times[word]).map((word) => `${word} after ${times[word]}`).join(", ").replace(/^./, (first) => first.toUpperCase()); };
  begin("reprice", subject(), { shown: shownName(), compared: JSON.parse(shownJob.compared).edits }, (kind, values, start) => {
    if (kind === "ladder") {
      values.names.forEach((name) => shownJob.fresh.add(name));
      showTimes(values);
      if (shownJob.names.every((name) => shownJob.fresh.has(name))) { times.ladder ??= seconds(); say(); }
    } else if (kind === "refused") shownJob.fresh.add(values.name);
    else if (kind === "timeline") {
      drawn = values.name;
      showTimeline(values).then(() => { times.timeline = seconds(); say(); });
    } else if (kind === "table") { showTable(values); held(start, values); }
    else if (kind === "done") {
      times.ladder ??= seconds();
      say();
      document.body.dataset.repriced = now;
      if (drawn !== shownName()) askTimeline();
    }
    else if (kind === "failed") problem(values);
  });
}
function exportPage() {
  if (shownJob.searched && unpriced(subject()) === shownJob.compared) return writePage();
  $("export-note").textContent = "Comparing first, so that the page has the strategies chosen for this cluster …";
  const begun = compareAll();
  shownJob.next = writePage;
  return begun;
}
function writePage() {
  $("export-note").textContent = "Writing the page …";
  return begin("page", subject(), {}, (kind, values, start) => {
    if (kind === "page") {
      const link = cell("a", values, "", { href: `api/jobs/${start.job}/page`, download: values });
      $("export-note").replaceChildren("Written: ", link, ", also in the folder pages of the working folder.");
      link.click();
    } else if (kind === "done" && !document.body.dataset.chosen) askTimeline();
    else if (kind === "failed") { $("export-note").textContent = ""; problem(values); }
  });
}
