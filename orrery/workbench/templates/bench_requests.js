// ---- requests to the server, one job at a time ------------------------------------------------------------
const BENCH = Array.from(crypto.getRandomValues(new Uint8Array(12)), (byte) => byte.toString(16).padStart(2, "0")).join("");
const LOST = "The server does not answer. Start orrery serve again and open the address that it prints; kept scenarios are safe.";

function problem(text) {
  $("problem").hidden = !text;
  $("problem").textContent = text || "";
}
async function ask(method, address, value, raw = false) {
  let answer;
  try {
    const body = value === undefined ? undefined : raw ? value : JSON.stringify(value);
    answer = await fetch(address, { method, body, headers: raw ? { "content-type": "application/yaml" } : { "content-type": "application/json" } });
  } catch {
    throw new Error(LOST);
  }
  const said = await answer.json().catch(() => ({ error: `The server answered ${answer.status}.` }));
  if (!answer.ok) throw new Error(said.error);
  return said;
}
// The job under way: what is asked later takes its place, and what comes late for an earlier one is dropped.
const job = { number: 0, id: null, kind: null, source: null };
function leaveJob() {
  job.source?.close();
  Object.assign(job, { id: null, kind: null, source: null });
  document.body.dataset.state = "idle";
  $("cancel").hidden = true;
  $("progress").hidden = true;
}
// Begins a job; hear is called with each event's kind and values, and at last with done, failed or cancelled.
async function begin(kind, subject, more, hear) {
  const number = ++job.number;
  leaveJob();
  Object.assign(job, { kind });
  document.body.dataset.state = kind;
  let begun;
  try {
    begun = await ask("POST", "api/jobs", { bench: BENCH, kind, subject, ...more });
  } catch (error) {
    if (number !== job.number) return null;
    leaveJob();
    hear("failed", error.message);
    return null;
  }
  if (number !== job.number) return null;
  job.id = begun.job;
  job.source = new EventSource(`api/jobs/${begun.job}/events`);
  const last = ["done", "failed", "cancelled"];
  for (const word of [...last, "progress", "table", "ladder", "timeline", "refused", "page"]) {
    job.source.addEventListener(word, (event) => {
      if (number !== job.number) return;
      problem("");
      if (last.includes(word)) leaveJob();
      hear(word, JSON.parse(event.data), begun);
    });
  }
  job.source.onerror = () => { if (number === job.number) problem(LOST); };
  return begun;
}
function cancelJob() {
  const { id } = job;
  job.number++;
  leaveJob();
  return id ? ask("DELETE", `api/jobs/${id}`).catch(() => null) : null;
}
const cell = (tag, text, className = "", more = {}) => Object.assign(document.createElement(tag), { textContent: text, className, ...more });
function rowOfCells(cells) {
  const row = document.createElement("tr");
  row.append(...cells);
  return row;
}
