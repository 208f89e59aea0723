// The pages / and /limits: who is limited, why, and how near the others are. Both are one document, so that the token
// stays between them.
"use strict";

const EVERY = 2000; // ms between two looks

const pages = { "/": "overview", "/limits": "limits" };
let page = pages[location.pathname] || "overview";
let one = null;      // the explanation that is shown, and the policy behind it
let ruleRows = [];
let nextRules = "";

// ---- words

const whole = new Intl.NumberFormat("en-US", { maximumFractionDigits: 1 });
const percent = (n) => whole.format(n) + " %";
const number = (n) => n === undefined ? "?" : whole.format(n);
const time = (text) => text.slice(0, 19).replace("T", " ") + " UTC";

function wait(ms, known = true) {
  if (!known) return "?";
  if (ms === undefined) return "never";
  return ms === 0 ? "–" : ms < 1000 ? ms + " ms" : ms < 120000 ? Math.ceil(ms / 1000) + " s"
    : ms < 7200000 ? Math.ceil(ms / 60000) + " min" : whole.format(ms / 3600000) + " h";
}

function since(text) {
  if (!text) return "never";
  const s = Math.max(0, Math.round((Date.now() - Date.parse(text)) / 1000));
  return s < 120 ? s + " s ago" : s < 7200 ? Math.round(s / 60) + " min ago" : Math.round(s / 3600) + " h ago";
}

// ---- drawing

function bar(part) {
  const e = element("span");
  e.className = part >= 100 ? "bar full" : "bar";
  e.style.setProperty("--fill", Math.min(100, part) + "%");
  e.setAttribute("role", "img");
  e.setAttribute("aria-label", percent(part) + " used");
  e.title = percent(part) + " used";
  return e;
}

// spark draws a figure of each of the last 15 minutes.
function spark(minutes) {
  const of = (name, values) => {
    const e = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(values)) e.setAttribute(key, value);
    return e;
  };
  const top = Math.max(1, ...minutes);
  const svg = of("svg", { class: "spark", viewBox: "0 0 60 14", preserveAspectRatio: "none", role: "img",
    "aria-label": "the last 15 minutes: " + minutes.join(", ") });
  minutes.forEach((n, i) => {
    const height = n > 0 ? Math.max(1, 14 * n / top) : 0.5;
    svg.append(of("rect", { x: i * 4, y: 14 - height, width: 3, height }));
  });
  return svg;
}

// grid draws a table: columns are [title, name of the class or "", what of a row].
function grid(columns, rows, none) {
  if (rows.length === 0) {
    const p = element("p", none);
    p.className = "empty";
    return p;
  }
  const table = element("table");
  const head = table.createTHead().insertRow();
  for (const [title, kind] of columns) {
    const th = element("th", title);
    th.scope = "col";
    th.className = kind;
    head.append(th);
  }
  const body = table.createTBody();
  for (const row of rows) {
    const tr = body.insertRow();
    for (const [title, kind, what] of columns) {
      const td = tr.insertCell();
      td.className = kind;
      td.dataset.name = title;
      td.append(what(row));
    }
  }
  return table;
}

function keyButton(k) {
  const button = element("button", k.key);
  button.type = "button";
  button.dataset.key = k.key;
  button.addEventListener("click", () => {
    go("/limits");
    explain(k.key);
  });
  return button;
}

const keyColumns = (last) => [
  ["Key", "", keyButton], ["Rule", "", (k) => k.rule], ["Limit", "", (k) => k.limit],
  ["Use", "", (k) => k.used === undefined ? "?" : bar(100 * k.used / Math.max(1, k.used + k.left))],
  ["Left", "number", (k) => number(k.left)], last,
  ["Retry", "number", (k) => wait(k.retry_after_ms, k.used !== undefined)],
  ["15 minutes", "", (k) => spark(k.minutes)],
];
const refusedColumns = keyColumns(["Refused", "number", (k) => (k.at_most ? "≥ " : "") + number(k.refused)]);
const nearColumns = keyColumns(["Highest", "number", (k) => percent(k.used_percent)]);

// put draws a table anew, and keeps the focus on the key that had it.
function put(id, table) {
  const place = at(id);
  const key = place.contains(document.activeElement) ? document.activeElement.dataset.key : undefined;
  place.replaceChildren(table);
  if (key !== undefined) [...place.querySelectorAll("button")].find((b) => b.dataset.key === key)?.focus();
}

function saySeen(top) {
  const names = top.replicas.map((r) => r.name || r.id);
  at("seen").textContent = [names.length > 1 ? "Replicas: " + names.join(", ") : "", top.note, top.problem]
    .filter(Boolean).join(". ");
}

// ---- the overview

async function overview() {
  const [status, top, coverage, reloads] = (await Promise.all(["/admin/status", "/admin/top?limit=5", "/admin/coverage",
    "/admin/reloads"].map((path) => ask("GET", path)))).map((a) => a.body);
  at("parts").replaceChildren(...status.parts.map((p) => {
    const name = element("div", p.name), detail = element("div", p.problem || p.detail || "ok");
    name.className = "name";
    detail.className = "detail";
    const li = element("li", name, detail);
    if (p.problem) li.className = "bad";
    return li;
  }));
  const t = status.traffic;
  at("rate").textContent = number(t.answers_per_second);
  at("refused").textContent = percent(t.refused_percent);
  at("by-policy").textContent = percent(t.by_policy_percent);
  at("unmatched").textContent = percent(t.unmatched_percent);
  at("unknown-domains").hidden = coverage.unknown_domains.length === 0;
  at("unknown-domains").replaceChildren(...coverage.unknown_domains.slice(0, 5).map((d) => element("div",
    "No rules have the domain " + d.domain + (d.similar ? " (did you mean " + d.similar + "?)" : "") + ": " + number(d.calls) +
    (d.calls === 1 ? " call" : " calls") + " since " + time(d.first) + " not limited" +
    (d.caller ? ", the last one from " + d.caller : "") + ".")));
  at("last-call").textContent = since(t.last_call);
  at("next-part").hidden = Boolean(t.last_call);
  at("ask-command").textContent = "headgate ask example client=alice -n 12";
  const shapes = coverage.shapes.filter((s) => s.unmatched > 0 && s.matched === 0).slice(0, 20);
  at("shapes-part").hidden = shapes.length === 0;
  at("shapes-title").textContent = shapes.length === 1 ? "1 shape matches no rule" : shapes.length + " shapes match no rule";
  at("shapes").replaceChildren(...shapes.map((s) => {
    const row = element("tr");
    [s.domain, s.entries.join(", ") || "(others)", number(s.unmatched), s.why || ""].forEach((text, i) => {
      const td = row.insertCell();
      td.append(text);
      td.dataset.name = ["Domain", "Entries", "Seen", "Why"][i];
      if (i === 2) td.className = "number";
    });
    return row;
  }));
  put("five", grid(refusedColumns, top.keys, "Nobody was refused."));
  at("reloads").replaceChildren(...(reloads.reloads.length ? reloads.reloads.slice(0, 5).map((r) =>
    element("li", time(r.at) + " " + r.source + ": " + r.changes.join("; "))) : [element("li", "Nothing has changed since the start.")]));
  saySeen(top);
  return status.status === "READY" ? "Ready" : status.status === "DRAINING" ? "Draining" : "Not ready";
}

// ---- limits

async function limits() {
  const [refused, near, rules] = (await Promise.all(["/admin/top?by=refused", "/admin/top?by=near",
    "/admin/rules?limit=" + Math.max(100, ruleRows.length)].map((path) => ask("GET", path)))).map((a) => a.body);
  put("refused-keys", grid(refusedColumns, refused.keys, "Nobody was refused."));
  put("near-keys", grid(nearColumns, near.keys, "Nobody was near a limit."));
  ruleRows = rules.rules;
  nextRules = rules.next || "";
  drawRules();
  saySeen(refused);
  await trial();
  return "Live";
}

// trial shows what rules on trial would change. A server without a candidate is not asked again.
async function trial() {
  if (trial.off) return;
  const answer = await ask("GET", "/admin/candidate?since=1h&top=5").catch((error) => {
    trial.off = error.status === 404;
    if (!trial.off) throw error;
  });
  at("trial").hidden = !answer;
  if (!answer) return;
  const c = answer.body;
  const perMinute = c.newly_refused / Math.max(1, (Date.now() - Date.parse(c.since || new Date())) / 60000);
  at("trial-sum").textContent = c.error ? c.error : !c.deciding ? "No rules are on trial." : "+" + number(perMinute) +
    "/min on trial: of " + number(c.requests) + " requests in the last hour the rules in force refused " +
    number(c.refused_old) + ", those on trial " + number(c.refused_new) + ".";
  const signed = (n) => (n > 0 ? "+" : "") + number(n);
  put("trial-rules", grid([["Rule", "", (r) => r.rule], ["Refused", "number", (r) => number(r.refused_old)],
    ["On trial", "number", (r) => number(r.refused_new)], ["Change", "number", (r) => signed(r.change)]],
  c.rules.filter((r) => r.change !== 0), "They would change no answer."));
}

// drawRules draws the rules as a tree: domains, nested descriptors, limits. Nodes that the user closed stay closed.
function drawRules() {
  const top = { children: new Map() };
  for (const r of ruleRows) {
    let node = top;
    for (const step of [r.domain, ...r.path]) {
      if (!node.children.has(step)) node.children.set(step, { step, limits: [], children: new Map() });
      node = node.children.get(step);
    }
    node.limits.push(r);
  }
  const focus = document.activeElement?.closest("#rules summary")?.dataset.path;
  at("rules").replaceChildren(...[...top.children.values()].map((node) => drawNode(node, "")));
  if (focus) [...at("rules").querySelectorAll("summary")].find((e) => e.dataset.path === focus)?.focus();
  at("more").hidden = nextRules === "";
}

const closed = new Set();

function drawNode(node, above) {
  const path = JSON.stringify([above, node.step]);
  const name = element("span", node.step);
  name.className = "step";
  if (node.children.size === 0 && node.limits.length === 1) return element("li", name, ...limitLine(node.limits[0]));
  const summary = element("summary", name);
  summary.dataset.path = path;
  const list = element("ul", ...node.limits.map((r) => element("li", ...limitLine(r))),
    ...[...node.children.values()].map((child) => drawNode(child, path)));
  const details = element("details", summary, list);
  details.open = !closed.has(path);
  details.addEventListener("toggle", () => details.open ? closed.delete(path) : closed.add(path));
  return element("li", details);
}

// limitLine returns the parts of a limit in the tree.
function limitLine(r) {
  const part = (kind, ...content) => {
    const e = element("span", ...content);
    e.className = kind;
    return e;
  };
  return [part("figures", (r.name ? r.name + " " : "") + r.limit + (r.shadow ? " (shadow)" : "") +
    (r.policy ? ", or policy " + r.policy : "")), r.used_percent ? bar(r.used_percent) : "",
  part(r.refused ? "many" : "muted", r.refused ? number(r.refused) + " refused" : ""), part("muted place", r.place || "")];
}

async function moreRules() {
  const { body } = await ask("GET", "/admin/rules?limit=1000&after=" + encodeURIComponent(nextRules));
  ruleRows = ruleRows.concat(body.rules);
  nextRules = body.next || "";
  drawRules();
}

// ---- one key

// explain shows one key; about is a key, its hash, or the id of a request.
async function explain(about) {
  const own = explain.turn = {};
  at("about").value = about;
  at("done").textContent = "";
  const query = new URLSearchParams(about.includes("|") || about.startsWith("sha256:") ? { key: about } : { request_id: about });
  try {
    const { body } = await ask("GET", "/admin/explain?" + query);
    if (explain.turn !== own) return; // somebody has asked about another key meanwhile
    problem("");
    await showOne(body, about);
    if (explain.turn === own) at("one").focus();
  } catch (error) {
    if (explain.turn !== own) return;
    at("one").hidden = true;
    if (error.status === 401) return signIn(error);
    problem(error.message);
  }
}

async function showOne(e, about) {
  one = { e, about, etag: "" };
  at("one").hidden = false;
  at("one-title").textContent = e.key;
  const verdict = at("verdict");
  verdict.textContent = e.passes === undefined ? "Not known; while the store fails, the rule says: " + (e.on_store_error || "?")
    : e.passes ? "A request would pass now" : "A request would be refused now";
  verdict.className = "verdict" + (e.passes === undefined ? "" : e.passes ? " yes" : " no");
  at("one-rule").textContent = e.rule ? "Rule " + e.rule + (e.place ? " (" + e.place + ")" : "") : "No rule: " + (e.why || "");
  at("one-nearly").hidden = !e.nearly;
  at("one-nearly").textContent = e.nearly ? "Nearly, so that one entry differs, is missing or is too many: " + e.nearly.map((r) => r.rule).join(", ") : "";
  put("one-limits", grid([["Limit", "", (l) => l.rule + (l.shadow ? " (shadow)" : "")], ["Figures", "", (l) => l.limit],
    ["Use", "", (l) => l.used === undefined ? "?" : bar(100 * l.used / Math.max(1, l.used + l.left))],
    ["Used", "number", (l) => number(l.used)], ["Left", "number", (l) => number(l.left)],
    ["Refused", "number", (l) => number(l.refused)], ["Retry", "number", (l) => wait(l.retry_after_ms, l.used !== undefined)],
  ], e.limits, "No limit applies."));
  at("refusals-title").hidden = !e.refusals;
  at("refusals").replaceChildren(...(e.refusals || []).slice(0, 5).map((r) => element("li", time(r.at) + " by " + r.rule + ", cause " +
    r.cause + ", retry " + wait(r.retry_after_ms) + (r.request_id ? ", request " + r.request_id : ""))));
  at("one-problem").textContent = [e.note, e.problem].filter(Boolean).join(". ");
  at("reset").hidden = e.limits.length === 0;
  at("reset").textContent = "Reset counters";
  at("change").hidden = at("one-policy").hidden = !e.policy;
  if (e.policy) await showPolicy(e);
  else at("past").replaceChildren(at("past-title").hidden = true && "");
}

const policyPath = (key) => "/admin/policies/" + encodeURIComponent(key);

// showPolicy shows which policy holds, what was changed, and a form for the policy of the key.
async function showPolicy(e) {
  const key = e.policy.looked_up[0];
  at("one-policy").textContent = e.policy.in_force ? "The policy " + e.policy.in_force + " holds in the place of the rule's limit."
    : "No policy holds; " + key + " would be that of this key.";
  fill(e.limits[0]?.in_force || {});
  at("past").replaceChildren();
  at("past-title").hidden = true;
  try {
    one.etag = (await ask("GET", policyPath(key))).etag;
  } catch (error) {
    if (error.status !== 404) at("one-policy").textContent += " " + error.message;
    at("change").hidden = error.status !== 404 || error.message.includes("policies are off");
  }
  const history = await ask("GET", "/admin/policies-history?" + new URLSearchParams({ key, limit: 5 })).catch(() => null);
  const numbers = (p) => !p ? "none" : p.algorithm === "token_bucket" ? `${p.rate} burst ${p.burst}` : `${p.algorithm} ${p.limit}/${p.window}`;
  const changes = history ? history.body.changes : [];
  at("past-title").hidden = changes.length === 0;
  at("past").replaceChildren(...changes.map((c) => element("li", time(c.changedAt) + " by " + (c.changedBy || "?") + ": " +
    numbers(c.before) + " → " + numbers(c.after))));
}

// fill puts a limit into the form.
function fill(words) {
  if (words.algorithm) at("algorithm").value = words.algorithm;
  const bucket = at("algorithm").value === "token_bucket";
  at("first").value = (bucket ? words.rate : words.limit) ?? "";
  at("second").value = (bucket ? words.burst : words.window) ?? "";
  names();
}

function names() {
  const bucket = at("algorithm").value === "token_bucket";
  at("first").ariaLabel = at("first").placeholder = bucket ? "rate, 10/s" : "limit";
  at("second").ariaLabel = at("second").placeholder = bucket ? "burst" : "window, 1m";
}

async function setPolicy(event) {
  event.preventDefault();
  const key = one.e.policy.looked_up[0];
  const [algorithm, first, second] = ["algorithm", "first", "second"].map((id) => at(id).value.trim());
  const body = algorithm === "token_bucket" ? { algorithm, rate: first, burst: Number(second) }
    : { algorithm, limit: Number(first), window: second };
  await act(async () => {
    await (one.etag ? ask("PUT", policyPath(key), body, one.etag) : ask("POST", "/admin/policies", { key, ...body }));
    return "The policy " + key + " is set.";
  });
}

// reset asks once more before it forgets.
async function reset() {
  if (at("reset").textContent !== "Reset for good") {
    at("reset").textContent = "Reset for good";
    return;
  }
  await act(async () => {
    await ask("POST", "/admin/reset/" + encodeURIComponent(one.e.key));
    return "The counters are reset.";
  });
}

// act changes something about the key, says so, and shows the key again.
async function act(change) {
  try {
    const done = await change();
    await explain(one.about);
    at("done").textContent = done;
  } catch (error) {
    at("done").textContent = error.status === 412 ? "Somebody has changed this policy meanwhile. Look at it again." : error.message;
  }
}

// ---- looking

let timer = 0;

async function look() {
  clearTimeout(timer);
  const own = look.turn = {};
  try {
    const text = page === "overview" ? await overview() : await limits();
    if (look.turn !== own) return;
    at("login-part").hidden = true;
    for (const name of Object.values(pages)) at(name).hidden = name !== page;
    at("state").textContent = text;
    if (look.failed) problem("");
    look.failed = false;
  } catch (error) {
    if (look.turn !== own) return;
    if (error.status === 401) return signIn(error);
    look.failed = true;
    at("state").textContent = "Not reachable";
    problem(error.message + " What is shown is old.");
  }
  if (!document.hidden) timer = setTimeout(look, EVERY);
}

function signIn(error) {
  for (const name of Object.values(pages)) at(name).hidden = true;
  login(error);
}

// go shows another of the two pages.
function go(path) {
  if (location.pathname !== path) history.pushState(null, "", path);
  page = pages[path];
  mark();
  look();
}

function mark() {
  at("title").textContent = page === "overview" ? "Overview" : "Limits";
  document.title = at("title").textContent + " · headgate";
  here();
}

for (const link of document.querySelectorAll("nav a")) {
  const path = link.getAttribute("href");
  if (pages[path]) {
    link.addEventListener("click", (event) => {
      if (event.ctrlKey || event.metaKey || event.shiftKey) return;
      event.preventDefault();
      go(path);
    });
  }
}
addEventListener("popstate", () => go(pages[location.pathname] ? location.pathname : "/"));
at("find").addEventListener("submit", (event) => {
  event.preventDefault();
  if (at("about").value.trim()) explain(at("about").value.trim());
});
at("close").addEventListener("click", () => { at("one").hidden = true; at("about").focus(); });
at("change").addEventListener("submit", setPolicy);
at("algorithm").addEventListener("change", names);
at("reset").addEventListener("click", reset);
at("more").addEventListener("click", () => moreRules().catch((error) => problem(error.message)));
document.addEventListener("visibilitychange", () => { if (!document.hidden) look(); });
document.addEventListener("keydown", (event) => {
  const inField = /^(INPUT|SELECT|TEXTAREA)$/.test(document.activeElement?.tagName || "");
  if (event.key === "/" && !inField && !at("limits").hidden) {
    event.preventDefault();
    at("about").focus();
  }
});
signedIn(look);
mark();
look();
