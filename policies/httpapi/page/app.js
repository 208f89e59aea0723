// The page of policies: searches them, changes them after a preview, and shows what was changed.
"use strict";

const PAUSE = 250;      // ms without a key until the server is asked
const PAGE = 100;       // policies that are fetched at once
const CHANGES = 20;     // changes of a policy that are fetched at once

let list = [];      // the policies that are shown
let next = "";      // where more of them begin
let editing = null; // { policy, etag } of the editor; policy is null for a new one

const pathOf = (key) => "/admin/policies/" + encodeURIComponent(key);

// ---- words

const whole = new Intl.NumberFormat("en-US", { maximumFractionDigits: 6 });
const seconds = (n) => n % 86400 === 0 ? whole.format(n / 86400) + " d" : n % 3600 === 0 ? whole.format(n / 3600) + " h"
  : n % 60 === 0 ? whole.format(n / 60) + " min" : whole.format(n) + " s";

// meaning says what a policy lets through.
function meaning(p) {
  switch (p.algorithm) {
    case "token_bucket": return `${whole.format(p.burst)} at once, and ${whole.format(p.refillRate)} per second after that`;
    case "sliding_log": return `${whole.format(p.limit)} in any ${seconds(p.windowSeconds)}`;
    case "sliding_window": return `about ${whole.format(p.limit)} in any ${seconds(p.windowSeconds)}`;
    case "fixed_window": return `${whole.format(p.limit)} in each window of ${seconds(p.windowSeconds)}`;
  }
  return "unknown";
}

// figures are a policy as commands and logs print it: 20/1m, sliding_log 2/1m.
function figures(p) {
  if (!p.algorithm) return "unknown";
  if (p.algorithm === "token_bucket") return `token_bucket ${p.rate.replace(/\/(?=\D)/, "/1")} burst ${p.burst}`;
  return (p.algorithm === "fixed_window" ? "" : p.algorithm + " ") + `${p.limit}/${p.window}`;
}

// room is how many units there are when nobody has used any.
const room = (p) => p.algorithm === "token_bucket" ? p.burst : p.limit;

// effect says what becomes of counters when a policy takes the place of another.
function effect(before, after) {
  if (!before || !after) return "";
  if (before.algorithm !== after.algorithm) return "The counters begin anew, because the algorithm is another.";
  if (room(after) < room(before)) return `Who has used more than the new ${after.limit === undefined ? "burst" : "limit"} waits.`;
  if (room(after) > room(before)) return "What is used stays used; nothing is given at once.";
  return "";
}

// ---- the list

async function load(more) {
  const query = new URLSearchParams({ limit: PAGE });
  if (at("prefix").value) query.set("prefix", at("prefix").value);
  if (more) query.set("after", next);
  const asked = query.toString();
  load.asked = asked;
  try {
    const { body } = await ask("GET", "/admin/policies?" + asked);
    if (load.asked !== asked) return; // a later search took its place
    list = more ? list.concat(body.policies) : body.policies;
    next = body.next || "";
    problem("");
    draw();
  } catch (error) {
    if (load.asked !== asked) return;
    if (error.status === 401) return signIn(error);
    problem(error.message);
  }
}

function signIn(error) {
  at("list-part").hidden = true;
  login(error);
}

function cell(row, text, name, number) {
  const td = row.insertCell();
  td.textContent = text;
  if (name) td.dataset.name = name;
  if (number) td.className = "number";
  return td;
}

function draw() {
  at("login-part").hidden = true;
  at("list-part").hidden = false;
  const rows = at("rows");
  rows.replaceChildren();
  for (const p of list) {
    const row = rows.insertRow();
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = p.key;
    button.addEventListener("click", () => edit(p.key));
    row.insertCell().append(button);
    cell(row, `${meaning(p)} (${figures(p)})`);
    cell(row, p.changedAt.slice(0, 19).replace("T", " "), "changed");
    cell(row, p.changedBy, "by");
    cell(row, p.version, "version", true);
  }
  at("more").hidden = next === "";
  at("none").hidden = list.length > 0;
  at("none").textContent = at("prefix").value ? "No policy has a key that begins with this. “New policy” shows the history of a key, also of a deleted policy."
    : "There are no policies: rules decide by their own limits.";
  at("state").textContent = list.length + (next ? " policies shown, there are more" : list.length === 1 ? " policy" : " policies");
}

// ---- the editor

async function edit(key) {
  try {
    const { body, etag } = await ask("GET", pathOf(key));
    open({ policy: body, etag });
  } catch (error) {
    problem(error.message);
    if (error.status === 404) load();
  }
}

function open(what) {
  editing = what;
  const p = what.policy || { key: at("prefix").value, algorithm: "token_bucket", rate: "10/s", burst: 100 };
  at("editor-title").textContent = what.policy ? "Change a policy" : "New policy";
  at("key").value = p.key;
  at("key").readOnly = Boolean(what.policy);
  fill(p);
  at("remove").hidden = !what.policy;
  say(false);
  at("editor").showModal();
  (what.policy ? first() : at("key")).focus();
  preview();
  recall();
}

// fill puts the numbers of a policy into the fields.
function fill(p) {
  at("algorithm").value = p.algorithm;
  for (const word of ["limit", "window", "rate", "burst"]) at(word).value = p[word] ?? "";
  at("remove").textContent = "Delete";
  fields();
}

const bucket = () => at("algorithm").value === "token_bucket";
const first = () => at(bucket() ? "rate" : "limit");

// fields shows the fields of the algorithm.
function fields() {
  at("bucket-part").hidden = !bucket();
  at("window-part").hidden = bucket();
}

// number is the JSON number of a field; what is none goes to the server as it is, which says so.
function number(id) {
  const text = at(id).value.trim();
  return text !== "" && Number.isFinite(Number(text)) ? Number(text) : text;
}

function change() {
  const algorithm = at("algorithm").value;
  const body = bucket() ? { algorithm, rate: at("rate").value.trim(), burst: number("burst") }
    : { algorithm, limit: number("limit"), window: at("window").value.trim() };
  if (!editing.policy) body.key = at("key").value;
  return body;
}

function send(dry) {
  const query = dry ? "?dryRun=true" : "";
  return editing.policy ? ask("PUT", pathOf(editing.policy.key) + query, change(), editing.etag)
    : ask("POST", "/admin/policies" + query, change());
}

function say(wrong, ...lines) {
  at("preview").classList.toggle("wrong", wrong);
  at("preview").replaceChildren(...lines.filter(Boolean).map((text) => Object.assign(document.createElement("p"), { textContent: text })));
}

function conflict(error) {
  return error.status === 412 ? "Somebody has changed this policy meanwhile. Close this and open it again." : error.message;
}

async function preview() {
  const own = preview.turn = {};
  at("save").disabled = true;
  try {
    const { body } = await send(true);
    if (preview.turn !== own) return;
    say(false, body.before ? "Now: " + meaning(body.before) + "." : "There is no policy for this key yet.",
      "Then: " + meaning(body.after) + ".", effect(body.before, body.after),
      body.after && body.after.warning ? "Warning: " + body.after.warning + "." : "");
    at("save").disabled = false;
  } catch (error) {
    if (preview.turn === own) say(true, conflict(error));
  }
}

function typed() {
  clearTimeout(typed.timer);
  preview.turn = null;
  at("save").disabled = true;
  typed.timer = setTimeout(() => {
    preview();
    if (at("key").value !== recall.key) recall();
  }, PAUSE);
}

async function save(event) {
  event.preventDefault();
  if (at("save").disabled) return;
  at("save").disabled = true;
  try {
    await send(false);
    close();
  } catch (error) {
    say(true, conflict(error));
  }
}

// remove asks once more before it deletes.
async function remove() {
  if (at("remove").textContent === "Delete") {
    at("remove").textContent = "Delete for good";
    say(false, "Without this policy, requests get the default policy, if there is one, else the limit of their rule.");
    return;
  }
  try {
    await ask("DELETE", pathOf(editing.policy.key), null, editing.etag);
    close();
  } catch (error) {
    say(true, conflict(error));
  }
}

function close() {
  at("editor").close();
  load();
}

// ---- the history of the policy in the editor

// recall shows who has changed the policy with the key in the editor: the newest changes, or with more those
// that follow. There may be no such policy any more.
async function recall(more) {
  const own = recall.turn = {};
  if (more !== true) {
    recall.key = at("key").value;
    at("past").replaceChildren();
    at("past-part").hidden = true;
    recall.next = recall.newer = null;
  }
  at("older").hidden = true;
  if (!recall.key) return;
  const shown = at("past").children.length;
  const query = new URLSearchParams({ key: recall.key, limit: CHANGES });
  if (recall.next) query.set("after", recall.next);
  try {
    const { body } = await ask("GET", "/admin/policies-history?" + query);
    if (recall.turn !== own) return;
    for (const change of body.changes) {
      at("past").append(entry(change, recall.newer));
      recall.newer = change;
    }
    recall.next = body.next;
    at("older").hidden = !body.next;
    if (more === true) at("past").children[shown]?.querySelector("button")?.focus(); // the button that had it may be gone
    at("past-note").textContent = recall.newer ? "" : "No change of this policy is known.";
    at("past-part").hidden = !recall.newer && !editing.policy;
  } catch (error) {
    if (recall.turn !== own || error.status === 400) return; // the preview says what is wrong with the key
    at("past-note").textContent = "The history cannot be read. " + error.message;
    at("past-part").hidden = false;
    at("older").hidden = !recall.next;
  }
}

// numbers are those that count for an algorithm, in the words of rules.
function numbers(p) {
  return !p.algorithm ? ["unknown"] : p.algorithm === "token_bucket" ? [p.algorithm, "rate " + p.rate, "burst " + whole.format(p.burst)]
    : [p.algorithm, "limit " + whole.format(p.limit), "window " + p.window];
}

// entry is a change in the list; newer is the one after it, null for the newest.
function entry(change, newer) {
  const time = element("time", change.changedAt.slice(0, 19).replace("T", " ") + " UTC");
  time.dateTime = change.changedAt;
  const { before, after } = change;
  return element("li", time, " by ", element("strong", change.changedBy || "somebody unknown"),
    state("Before", before, after, !equal(before, editing.policy)),
    state("After", after, before, !equal(after, editing.policy) && !equal(after, newer && newer.before)));
}

const equal = (a, b) => Boolean(a && b) && numbers(a).join() === numbers(b).join();

// state is one side of a change, with what differs from the other marked.
function state(side, p, other, restorable) {
  const row = element("div", element("span", side));
  row.className = "state";
  if (!p) {
    row.append(element("span", "no policy"));
    return row;
  }
  const others = other ? numbers(other) : [];
  row.append(...numbers(p).map((text, i) => element(other && others[i] !== text ? "mark" : "span", text)));
  if (restorable && p.algorithm) {
    const button = element("button", "Restore these numbers");
    button.type = "button";
    button.ariaLabel = "Restore these numbers: " + numbers(p).join(", ");
    button.addEventListener("click", () => restore(p));
    row.append(button);
  }
  return row;
}

// restore fills the editor; saving is up to the person, after the preview.
function restore(p) {
  fill(p);
  typed();
  at("editor").scrollTop = 0;
  first().focus();
}

// ---- beginning

signedIn(load);
at("search").addEventListener("submit", (event) => {
  event.preventDefault();
  load();
});
at("prefix").addEventListener("input", () => {
  clearTimeout(load.timer);
  load.timer = setTimeout(load, PAUSE);
});
at("more").addEventListener("click", () => load(true));
at("new").addEventListener("click", () => open({ policy: null, etag: "" }));
at("form").addEventListener("submit", save);
at("form").addEventListener("input", () => {
  at("remove").textContent = "Delete";
  fields();
  typed();
});
at("remove").addEventListener("click", remove);
at("older").addEventListener("click", () => recall(true));
at("cancel").addEventListener("click", () => at("editor").close());
at("editor").addEventListener("close", () => {
  at("save").disabled = true;
  clearTimeout(typed.timer);
  preview.turn = recall.turn = null;
});
document.addEventListener("keydown", (event) => {
  const inField = /^(INPUT|SELECT|TEXTAREA)$/.test(document.activeElement?.tagName || "");
  if (event.key === "/" && !inField && !at("editor").open && !at("list-part").hidden) {
    event.preventDefault();
    at("prefix").focus();
  }
});
load();
