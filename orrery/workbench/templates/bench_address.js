// ---- the page's state in its address: what is chosen, what is changed, what was compared -------------------------
const SINGLE = ["model", "cluster", "batch", "dtype", "sync", "price", "shown"], SEVERAL = ["strategy", "set", "compared", "beside"];
const LONGEST_ADDRESS = 65536, NONE = "none", BEGIN = $("answer").textContent;
let opening = false, entry = "", remembered = 0, settling = 0;

const assignments = (changes) => Object.entries(changes).map(([name, value]) => `${name}=${value}`);
function addressOf() {
  const { model, cluster, batch, strategies, dtype, gradient_sync, price, edits: changes } = subject(), words = new URLSearchParams({ model, cluster, batch });
  const add = (name, values) => values.forEach((value) => words.append(name, value)), compared = shownJob.asked && JSON.parse(shownJob.asked).edits;
  add("strategy", strategies);
  add("dtype", dtype === "float32" ? [] : [dtype]);
  add("sync", gradient_sync ? [gradient_sync] : []);
  add("price", price ? [price] : []);
  add("set", assignments(changes));
  if (isCompared()) {
    add("compared", Object.keys(compared).length ? assignments(compared) : [NONE]);
    add("shown", shownJob.shown ? [shownJob.shown] : []);
  }
  add("beside", shownPair);
  return `#${words.toString().replace(/%(?:2C|3A|2F|3D|40)/g, decodeURIComponent)}`; // these need no code, and read better
}
// Changes that follow each other, as of a slider that is dragged, are one entry of the history; a comparison is its own.
function remember(how = performance.now() - remembered > 400 ? "pushState" : "replaceState") {
  if (opening || addressOf() === location.hash) return;
  remembered = performance.now();
  if (entry !== "pushState") entry = how;
  clearTimeout(settling);
  settling = setTimeout(() => {
    if (addressOf() !== location.hash) history[entry](null, "", addressOf());
    entry = "";
  }, entry === "pushState" ? 0 : 400);
}
function readAddress(text) {
  if (text.length > LONGEST_ADDRESS) throw new Error(`it must have at most ${number(LONGEST_ADDRESS)} characters, got ${number(text.length)}`);
  const words = new URLSearchParams(text), unknown = [...words.keys()].find((name) => !SINGLE.includes(name) && !SEVERAL.includes(name));
  if (unknown !== undefined) throw new Error(`its parts must be ${[...SINGLE, ...SEVERAL].join(", ")}, got ${unknown}`);
  const one = (name) => { if (words.getAll(name).length > 1) throw new Error(`${name} must stand in it once`); return words.get(name); };
  const changes = (name) => Object.fromEntries(words.getAll(name).filter((each) => each !== NONE).map((each) => {
    const [, of, value] = each.match(/^([^=]+)=(.+)$/s) ?? [];
    if (!of) throw new Error(`${name} must look like link.CLASS.bandwidth_factor=0.5, got ${each}`);
    return [of, value];
  }));
  const batch = one("batch"), values = { model: one("model") ?? undefined, cluster: one("cluster") ?? undefined, batch: batch === null ? undefined : Number(batch), strategies: words.getAll("strategy"),
    gradient_sync: one("sync"), dtype: one("dtype") ?? "float32", price: one("price"), edits: changes("set") };
  return { values, compared: words.has("compared") ? changes("compared") : null, shown: one("shown") ?? "", pair: words.getAll("beside") };
}
// Shows what an address says, and returns the reason if it cannot be shown; the page then stays as it was.
async function openAddress() {
  opening = true;
  problem("");
  try {
    const { values, compared, shown, pair } = readAddress(location.hash.slice(1));
    if (!await openSubject(values)) return "";
    if (compared) openResults({ ...subject(), edits: compared }, shown);
    else leaveResults();
    if (pair.length) await comparePair(...pair);
    return "";
  } catch (error) {
    return `This address cannot be opened: ${error.message.replace(/\.$/, "")}.`;
  } finally {
    opening = false;
  }
}
// Takes a subject over into the page, once the server has found nothing wrong with it.
async function openSubject(values) {
  const drawn = await drawnCluster(values);
  if (!drawn) return false;
  for (const [id, spec] of [["model", values.model], ["cluster", values.cluster]])
    if (![...$(id).options].some((each) => each.value === base(spec))) throw new Error(`${id} ${base(spec)} is not here any more`);
  edits.clear();
  for (const [name, value] of Object.entries(values.edits)) edits.set(name, value);
  setSubject(values);
  showCluster(drawn);
  pickChanged();
  return true;
}
