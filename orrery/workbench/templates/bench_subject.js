// ---- what is compared: network, cluster, batch and strategies ------------------------------------------------
const USUAL = ["data", "owt", "spatial", "layerwise"];
const withParameters = (name, text) => (text.trim() ? `${name}:${text.trim()}` : name);
const base = (name) => (name.startsWith("upload:") ? name.split(":").slice(0, 2).join(":") : name.split(":")[0]);

function subject() {
  const strategies = [...document.querySelectorAll("#strategies input:checked")].map((each) => each.value);
  return {
    model: withParameters($("model").value, $("model-parameters").value), cluster: withParameters($("cluster").value, $("cluster-parameters").value),
    batch: Number($("batch").value), strategies, gradient_sync: $("gradient-sync").value || null, dtype: $("dtype").value, price: $("price").value || null, edits: Object.fromEntries(edits),
  };
}
const subjectLine = () => `Orrery workbench · ${$("model").value} · ${$("cluster").value} · batch ${number(Number($("batch").value))}`;
function setSubject(values) {
  for (const [id, spec] of [["model", values.model], ["cluster", values.cluster]]) {
    $(id).value = base(spec);
    $(`${id}-parameters`).value = spec.slice(base(spec).length + 1);
  }
  $("batch").value = values.batch;
  $("dtype").value = values.dtype;
  $("gradient-sync").value = values.gradient_sync ?? "";
  $("price").value = values.price ?? "";
  addStrategies(values.strategies);
  document.querySelectorAll("#strategies input").forEach((each) => { each.checked = values.strategies.includes(each.value); });
}
function addStrategies(names) {
  const known = [...document.querySelectorAll("#strategies input")].map((each) => each.value);
  for (const name of names.filter((each) => !known.includes(each))) {
    const label = document.createElement("label");
    label.append(cell("input", "", "plain", { type: "checkbox", value: name, checked: USUAL.includes(name) }), name);
    $("strategies").append(label);
  }
}
// Any text of a plan can be compared, beside the strategies of the catalogue.
function addPlan() {
  const text = $("plan").value.trim();
  if (!text) return problem("A plan looks like data,recompute=segments or pipeline=4,schedule=gpipe.");
  addStrategies([text]);
  [...document.querySelectorAll("#strategies input")].find((each) => each.value === text).checked = true;
  $("plan").value = "";
  subjectChanged();
}
function perDevice() {
  const batch = Number($("batch").value), count = bench.cluster?.devices.length;
  $("per-device").textContent = count && batch ? `${short(batch / count)} a device` : "";
}
function fillChoices(values) {
  const fill = (id, known, uploaded) => {
    const chosen = $(id).value, groups = [["catalogue", known], ["uploaded", uploaded]].filter(([, rows]) => rows.length).map(([label, rows]) => {
      const group = document.createElement("optgroup");
      group.label = label;
      group.append(...rows.map(([name, text]) => new Option(text, name)));
      return group;
    });
    $(id).replaceChildren(...groups);
    if (chosen) $(id).value = chosen;
  };
  const plain = (name) => [name, name.replace("upload:", "")];
  fill("model", values.models.map(plain), values.uploaded.models.map(plain));
  fill("cluster", values.clusters.map((each) => [each.name, `${each.name}, ${each.devices} devices`]), values.uploaded.clusters.map(plain));
  addStrategies(values.strategies);
  if (!$("dtype").options.length) $("dtype").replaceChildren(...values.dtypes.map((name) => new Option(name)));
  if (!$("gradient-sync").options.length) $("gradient-sync").replaceChildren(new Option("as the cluster declares", ""), ...values.gradient_syncs.map((name) => new Option(name)));
  showScenarios(values.scenarios);
}
async function upload(kind, input, select) {
  const [file] = input.files;
  input.value = "";
  if (!file) return;
  const name = file.name.replace(/\.ya?ml$/i, "").replace(/[^A-Za-z0-9_-]+/g, "-").replace(/^[-_]+/, "").slice(0, 60) || "upload";
  await attempt(async () => {
    if (file.size > 8 * 2 ** 20) throw new Error(`${file.name} must have at most 8 MiB, got ${(file.size / 2 ** 20).toFixed(1)}.`);
    $("status-line").textContent = `Reading ${file.name} …`;
    const found = await ask("PUT", `api/uploads/${kind}/${name}`, await file.arrayBuffer(), true).finally(() => { $("status-line").textContent = ""; });
    fillChoices(await ask("GET", "api/choices"));
    select.value = found.name;
    select.dispatchEvent(new Event("change"));
    const { name: _, ...sizes } = found;
    $("status-line").textContent = `${file.name} is read: ${Object.entries(sizes).map(([word, count]) => `${number(count)} ${word}`).join(", ")}.`;
  });
}
function subjectChanged() {
  perDevice();
  remember();
  if (shownJob.asked && !isCompared()) $("status-line").textContent = "Changed: press Compare.";
}
async function start() {
  document.body.dataset.state = "idle";
  listenToSliders();
  listenToScenarios();
  $("subject").addEventListener("submit", (event) => { event.preventDefault(); if (subject().strategies.length) compareAll(); else problem("Choose at least one strategy."); });
  $("add-plan").addEventListener("click", addPlan);
  $("plan").addEventListener("keydown", (event) => { if (event.key === "Enter") { event.preventDefault(); addPlan(); } });
  $("cancel").addEventListener("click", () => { cancelJob(); shownJob.asked = ""; remember(); $("status-line").textContent = "Cancelled."; });
  $("export").addEventListener("click", exportPage);
  $("model-upload").addEventListener("change", () => upload("models", $("model-upload"), $("model")));
  $("cluster-upload").addEventListener("change", () => upload("clusters", $("cluster-upload"), $("cluster")));
  for (const id of ["cluster", "cluster-parameters"]) $(id).addEventListener("change", () => { if (id === "cluster") { $("cluster-parameters").value = ""; edits.clear(); } readCluster().then(subjectChanged); });
  $("model").addEventListener("change", () => { $("model-parameters").value = ""; });
  $("subject").addEventListener("input", subjectChanged);
  $("price").addEventListener("change", clusterChanged);
  await attempt(async () => {
    fillChoices(await ask("GET", "api/choices"));
    $("model").value = "vgg16";
    $("cluster").value = "fdr-32x3";
    $("status-line").textContent = "";
    const wrong = location.hash ? await openAddress() : "";
    if (!bench.cluster) await readCluster();
    if (wrong) problem(wrong);
    else if (!location.hash) history.replaceState(null, "", addressOf());
    window.addEventListener("hashchange", async () => { const why = await openAddress(); if (why) problem(why); });
  });
  document.body.dataset.ready = "yes";
}
start();
