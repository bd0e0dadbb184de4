// ---- scenarios: kept under names, opened again, two of them side by side -------------------------------------
function showScenarios(rows) {
  $("no-scenarios").hidden = rows.length > 0;
  $("scenarios-scroll").hidden = !rows.length;
  const good = rows.filter((row) => !row.error), [left, right] = [$("left").value, $("right").value];
  $("pair").hidden = good.length < 2;
  $("scenarios").tBodies[0].replaceChildren(...rows.map(scenarioRow));
  for (const [id, kept, usual] of [["left", left, 0], ["right", right, 1]]) {
    $(id).replaceChildren(...good.map((row) => new Option(row.name, row.file)));
    $(id).value = good.some((row) => row.file === kept) ? kept : good[usual]?.file ?? "";
  }
}
function scenarioRow(row) {
  const buttons = document.createElement("td"), drop = cell("button", "delete", "", { type: "button" });
  buttons.className = "word";
  drop.setAttribute("aria-label", `Delete ${row.name}`);
  drop.addEventListener("click", async () => attempt(async () => showScenarios((await ask("DELETE", `api/scenarios/${row.file}`)).scenarios)));
  if (row.error) return rowOfCells([cell("th", row.name, "word", { scope: "row" }), cell("td", row.error, "word wrap", { colSpan: 4 }), buttons, ...[buttons.append(drop)].slice(1)]);
  const open = cell("button", "open", "", { type: "button" });
  open.setAttribute("aria-label", `Open ${row.name}`);
  open.addEventListener("click", () => openScenario(row));
  buttons.append(open, drop);
  const { model, cluster, batch, edits: changes } = row.subject, list = Object.entries(changes).map(([name, value]) => `${name}=${value}`).join(", ");
  return rowOfCells([cell("th", row.name, "word", { scope: "row" }), cell("td", `${model}, batch ${number(batch)}`, "word"), cell("td", cluster, "word"), cell("td", list || "none", "word change"), cell("td", row.winner, "word"), buttons]);
}
async function attempt(work) {
  try {
    problem("");
    return await work();
  } catch (error) {
    problem(error.message);
    return null;
  }
}
async function openScenario(row) {
  edits.clear();
  for (const [name, value] of Object.entries(row.subject.edits)) edits.set(name, value);
  setSubject(row.subject);
  $("scenario-name").value = row.name;
  if (await readCluster()) compareAll();
  $("subject").scrollIntoView({ block: "start" });
}
let shownPair = [];
async function comparePair(left, right) {
  showPair(await ask("POST", "api/scenarios/compared", { left, right }));
  shownPair = [left, right];
  remember();
}
function showPair(values) {
  const [left, right] = values.names, { unit } = values;
  $("side-by-side").hidden = false;
  $("side-headline").textContent = values.headline;
  const heads = (words) => rowOfCells(words.map((word, at) => cell("th", word, at ? "" : "word", { scope: "col" })));
  $("differences").hidden = !values.differences.length;
  $("differences").tHead.replaceChildren(rowOfCells(["differs in", left, right].map((word) => cell("th", word, "word", { scope: "col" }))));
  $("differences").tBodies[0].replaceChildren(...values.differences.map(([field, a, b]) => rowOfCells([cell("th", field, "word", { scope: "row" }), cell("td", a, "word change"), cell("td", b, "word change")])));
  $("side-rows").tHead.replaceChildren(heads(values.heads));
  $("side-rows").tHead.rows[0].lastChild.className = "word";
  $("side-rows").tBodies[0].replaceChildren(...values.rows.map((row) => rowOfCells([cell("th", row.name, "word", { scope: "row" }), ...row.times.map((text) => cell("td", text)), ...[...row.rates, ...row.cost].map((text) => cell("td", text)), cell("td", row.ratio), cell("td", row.pace[1], "word change")])));
  const names = values.rows.map((row) => row.name), colours = ["{{ palette.COMPUTE }}", "{{ palette.COMMUNICATION }}"];
  Plotly.react("side-figure", [0, 1].map((at) => ({ type: "bar", orientation: "h", name: values.names[at], y: names, x: values.rows.map((row) => row.values[at]), marker: { color: colours[at] }, hovertemplate: `%{y}, ${at ? "right" : "left"}: %{x:.4~g} ${unit}<extra></extra>` })),
    layout({ barmode: "group", height: 90 + 58 * names.length, margin: { l: 8, r: 16, t: 34, b: 44 }, showlegend: true, legend: { orientation: "h", y: 1, yanchor: "bottom", x: 0, traceorder: "normal" }, xaxis: { title: { text: `iteration [${unit}]` }, zeroline: false, rangemode: "tozero" }, yaxis: { automargin: true, autorange: "reversed" } }), CONFIG);
}
function listenToScenarios() {
  $("keep").addEventListener("submit", (event) => {
    event.preventDefault();
    attempt(async () => showScenarios((await ask("PUT", "api/scenarios", { name: $("scenario-name").value, job: shownJob.id })).scenarios));
  });
  $("pair").addEventListener("submit", (event) => {
    event.preventDefault();
    attempt(() => comparePair($("left").value, $("right").value));
  });
}
