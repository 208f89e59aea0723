// The page of slots: asks the API every two seconds and draws what it says.
"use strict";

const EVERY = 2000;   // ms between two refreshes
const PATIENCE = 6000; // ms until a request counts as failed
const WINDOWS = 60;

const at = (id) => document.getElementById(id);

const view = {
  configs: null,  // the last answers
  windows: null,
  wanted: decodeHash(), // the config's name, null: not chosen yet
  from: null,     // ms since the epoch, null: now
  place: 0,       // of the window that is pointed at
  pointing: false,
  updated: null,  // Date of the last answer
};

function decodeHash() {
  try {
    return decodeURIComponent(location.hash.slice(1)) || null;
  } catch {
    return null;
  }
}

// ---- asking

async function ask(path, signal) {
  const response = await fetch(path, { signal, cache: "no-store", credentials: "same-origin" });
  const body = await response.json().catch(() => null);
  if (!response.ok) {
    throw new Error(body && body.message ? body.message : "the server answers with status " + response.status);
  }
  return body;
}

function windowsPath(name) {
  const query = new URLSearchParams({ config: name, limit: WINDOWS });
  if (view.from !== null) query.set("from", new Date(view.from).toISOString());
  return "/api/v1/windows?" + query;
}

// choose returns the name of the config to show: the one that is wanted, else
// "default", else the first.
function choose(configs) {
  const names = configs.map((c) => c.configName);
  return [view.wanted, "default"].find((n) => names.includes(n)) ?? names[0] ?? null;
}

let timer = 0;
let running = null; // the controller of the refresh that is under way

async function refresh() {
  clearTimeout(timer);
  if (running) running.abort();
  const own = running = new AbortController();
  const limit = setTimeout(() => own.abort(new Error("no answer")), PATIENCE);
  try {
    const { configs, unreadable = [] } = await ask("/api/v1/configs", own.signal);
    const name = choose(configs);
    const windows = name === null ? null : await ask(windowsPath(name), own.signal);
    if (running !== own) return;
    Object.assign(view, { configs, windows, updated: new Date() });
    show("live", "Live", unreadable.map((c) => "Config " + c.configName + " cannot be read: " + c.error).join(". "));
    draw();
  } catch (error) {
    if (running !== own) return; // a later refresh took its place
    show("away", "Not reachable", explain(error));
  } finally {
    clearTimeout(limit);
    if (running === own) {
      running = null;
      if (!document.hidden) timer = setTimeout(refresh, EVERY);
    }
  }
}

function explain(error) {
  const since = view.updated ? "What is shown is from " + clock(view.updated) + ". " : "";
  const lost = error instanceof TypeError || error.name === "AbortError" || error.message === "no answer";
  const reason = lost ? "The server does not answer." : "The server says: " + error.message + ".";
  return reason + " " + since + "Trying again every two seconds.";
}

// ---- words

const two = (n) => String(n).padStart(2, "0");
const clock = (d) => two(d.getHours()) + ":" + two(d.getMinutes()) + ":" + two(d.getSeconds());
const whole = new Intl.NumberFormat("en-US");
const short = new Intl.NumberFormat("en-US", { notation: "compact", maximumFractionDigits: 1 });
const zoneName = () => Intl.DateTimeFormat().resolvedOptions().timeZone || "local";

// sizeMs reads the canonical durations of the API, such as PT1H30M or PT0.5S.
function sizeMs(text) {
  const [, h, m, s] = /^PT(?:(\d+)H)?(?:(\d+)M)?(?:([\d.]+)S)?$/.exec(text);
  return Math.round(((+h || 0) * 3600 + (+m || 0) * 60 + (+s || 0)) * 1000);
}

function sizeWords(ms) {
  const parts = [[3600000, "h"], [60000, "min"], [1000, "s"]];
  for (const [unit, word] of parts) if (ms % unit === 0) return ms / unit + " " + word;
  return ms >= 1000 ? ms / 1000 + " s" : ms + " ms";
}

// rate tells the mean rate in the unit in which it is at least 1.
function rate(max, ms) {
  for (const [unit, word] of [[1000, "second"], [60000, "minute"], [3600000, "hour"]]) {
    if (max * unit / ms >= 1) return short.format(max * unit / ms) + " per " + word;
  }
  return short.format(max * 86400000 / ms) + " per day on average";
}

// stamp writes an instant as finely as windows of this size need, in UTC or
// local time; dated with the day.
function stamp(ms, size, utc, dated) {
  const d = new Date(utc ? ms : ms - new Date(ms).getTimezoneOffset() * 60000);
  const iso = d.toISOString();
  const end = size % 60000 === 0 ? 16 : size % 1000 === 0 ? 19 : 23;
  return (dated ? iso.slice(0, 10) + " " : "") + iso.slice(11, end);
}

function apart(ms) {
  const s = Math.round(Math.abs(ms) / 1000);
  const words = s < 120 ? s + " s" : s < 7200 ? Math.round(s / 60) + " min"
    : s < 172800 ? Math.round(s / 3600) + " h" : whole.format(Math.round(s / 86400)) + " days";
  return ms < 0 ? words + " ago" : "in " + words;
}

// ---- drawing

function text(id, value) {
  const e = at(id);
  if (e.textContent !== value) e.textContent = value;
}

function make(tag, className, content) {
  const e = document.createElement(tag);
  if (className) e.className = className;
  if (content !== undefined) e.textContent = content;
  return e;
}

function show(state, words, problem) {
  at("state").dataset.state = state;
  document.body.classList.toggle("away", state === "away");
  text("state-text", words);
  text("updated", view.updated ? "last updated " + clock(view.updated) : "");
  text("alert", problem);
  at("alert").hidden = problem === "";
}

function draw() {
  const none = view.configs.length === 0;
  at("empty").hidden = !none;
  at("configs-part").hidden = none;
  at("chosen").hidden = none;
  if (none) return;
  drawCards();
  drawChosen();
}

let drawnCards = "";

// drawCards leaves cards alone that have not changed, so that focus stays.
function drawCards() {
  const state = JSON.stringify([view.configs, view.windows.configName]);
  if (state === drawnCards) return;
  drawnCards = state;
  const focused = document.activeElement && document.activeElement.dataset.name;
  at("configs").replaceChildren(...view.configs.map(card));
  reveal(document.querySelector('.card[aria-pressed="true"]'));
  if (focused !== undefined) {
    const again = [...document.querySelectorAll(".card")].find((c) => c.dataset.name === focused);
    if (again) again.focus();
  }
}

// reveal scrolls the list of cards, but not the page.
function reveal(card) {
  const box = at("configs");
  if (!card) return;
  box.scrollLeft = card.offsetLeft - box.offsetLeft - (box.clientWidth - card.offsetWidth) / 2;
  box.scrollTop = card.offsetTop - box.offsetTop - (box.clientHeight - card.offsetHeight) / 2;
}

function card(config) {
  const ms = sizeMs(config.windowSize);
  const button = make("button", "card");
  button.type = "button";
  button.dataset.name = config.configName;
  button.setAttribute("aria-pressed", String(config.configName === view.windows.configName));
  button.title = config.configName;
  button.append(make("span", "name", config.configName),
    make("span", "", whole.format(config.maxPerWindow) + " in " + sizeWords(ms)),
    make("span", "rate", config.maxPerWindow > 0 ? rate(config.maxPerWindow, ms) : "takes no events"));
  const tags = [];
  if (config.maxPerWindow === 0) tags.push(make("span", "paused", "paused"));
  if (config.jitter) tags.push(make("span", "", config.jitter));
  if (config.calendar) tags.push(make("span", "", "calendar " + config.calendar.zone));
  if (config.maxDelay) tags.push(make("span", "", "at most " + config.maxDelay.slice(2).toLowerCase() + " late"));
  if (config.scope) tags.push(make("span", "", "scope " + config.scope));
  if (tags.length > 0) {
    const row = make("span", "tags");
    row.append(...tags);
    button.append(row);
  }
  button.addEventListener("click", () => {
    view.wanted = config.configName;
    view.place = 0;
    history.replaceState(null, "", "#" + encodeURIComponent(config.configName));
    refresh();
  });
  const item = document.createElement("li");
  item.append(button);
  return item;
}

// list returns the windows with their times as numbers.
function list() {
  return view.windows.windows.map((w) => ({ start: Date.parse(w.start), count: w.count, capacity: w.capacity }));
}

const isFull = (w) => w.capacity > 0 && w.count >= w.capacity;

function drawChosen() {
  const { windows: answer } = view;
  const all = list();
  const size = sizeMs(answer.windowSize);
  const now = Date.parse(answer.now);
  const next = all.findIndex((w) => w.count < w.capacity);
  text("chosen-title", answer.configName);
  text("chosen-limit", whole.format(answer.maxPerWindow) + " events in each window of " + sizeWords(size) +
    " · since " + answer.effectiveFrom.slice(0, 19).replace("T", " ") + " UTC");
  drawFacts(all, size, now, next);
  drawBars(all, answer.maxPerWindow, next);
  drawAxis(all, size);
  drawReadout(all, size);
  if (at("details").open) drawTable(all, size);
  if (view.from === null && document.activeElement !== at("from")) {
    at("from").value = new Date(all[0].start).toISOString().slice(0, 19);
  }
  at("now").setAttribute("aria-pressed", String(view.from === null));
}

function drawFacts(all, size, now, next) {
  const open = all.filter((w) => w.capacity > 0);
  const events = all.reduce((sum, w) => sum + w.count, 0);
  const room = open.reduce((sum, w) => sum + w.capacity, 0);
  const full = all.filter(isFull).length;
  const free = view.windows.nextFree;
  if (free !== undefined) {
    const start = Date.parse(free);
    const today = new Date(now).toISOString().slice(0, 10) === new Date(start).toISOString().slice(0, 10);
    text("next", stamp(start, size, true, !today) + " UTC");
    text("next-more", (start <= now && now < start + size ? "it has begun" : apart(start - now)) +
      (next >= 0 ? " · " + whole.format(all[next].capacity - all[next].count) + " places left" : ""));
  } else {
    text("next", "none here");
    text("next-more", view.windows.maxPerWindow === 0 ? "the config is paused" : open.length === 0 ? "the calendar is closed" : "look later");
  }
  text("events", whole.format(events));
  text("events-more", room > 0 ? "of " + whole.format(room) + " places, " + percent(events, room) : "");
  text("full", full + " of " + open.length);
  text("full-more", view.windows.maxPerWindow > 0 && all.length > open.length ? all.length - open.length + " closed" : "");
}

function percent(part, of) {
  const p = 100 * part / of;
  return p > 0 && p < 1 ? "less than 1 %" : Math.floor(p) + " %";
}

function drawBars(all, max, next) {
  const bars = at("bars");
  while (bars.children.length > all.length) bars.lastChild.remove();
  while (bars.children.length < all.length) bars.append(make("div", "bar"));
  const top = Math.max(max, 1);
  all.forEach((w, i) => {
    const bar = bars.children[i];
    bar.className = ["bar", isFull(w) && "all", w.capacity === 0 && "shut", i === next && "next"].filter(Boolean).join(" ");
    bar.style.setProperty("--fill", Math.min(100, 100 * w.count / top) + "%");
    bar.style.setProperty("--least", w.count > 0 ? "2px" : "0");
  });
  text("scale-top", short.format(max));
}

// inUTC tells whether local time is UTC.
const inUTC = (all) => [all[0], all.at(-1)].every((w) => new Date(w.start).getTimezoneOffset() === 0);

// drawAxis puts as many labels as fit, the upper line in UTC, the lower one local.
function drawAxis(all, size) {
  const axis = at("axis");
  const dated = size * all.length > 20 * 3600000;
  const width = dated ? 120 : size % 1000 ? 100 : 84;
  const labels = Math.max(1, Math.min(6, Math.floor(axis.clientWidth / width)));
  const step = Math.ceil(all.length / labels);
  const marks = [];
  for (let i = 0; i < all.length; i += step) {
    const lines = [stamp(all[i].start, size, true, dated) + (i === 0 ? " UTC" : "")];
    if (!inUTC(all)) lines.push(stamp(all[i].start, size, false, dated) + (i === 0 ? " local" : ""));
    const mark = make("span", "", lines.join("\n"));
    mark.style.left = 100 * i / all.length + "%";
    marks.push(mark);
  }
  axis.replaceChildren(...marks);
}

function sentence(w, size) {
  const fill = w.capacity === 0 ? (view.windows.maxPerWindow === 0 ? "paused, " : "closed, ") + whole.format(w.count) + " events"
    : whole.format(w.count) + " of " + whole.format(w.capacity) + (isFull(w) ? ", full" : "");
  return fill + " · " + stamp(w.start, size, true, true) + " UTC" +
    (inUTC([w]) ? "" : ", " + stamp(w.start, size, false, true) + " " + zoneName());
}

function drawReadout(all, size) {
  const place = view.place = Math.max(0, Math.min(view.place, all.length - 1));
  [...at("bars").children].forEach((bar, i) => bar.classList.toggle("at", view.pointing && i === place));
  const words = sentence(all[place], size);
  text("readout", view.pointing ? words : "Point at a window, or use the arrow keys, to read it.");
  const chart = at("chart");
  chart.setAttribute("aria-valuemax", all.length);
  chart.setAttribute("aria-valuenow", place + 1);
  chart.setAttribute("aria-valuetext", words);
}

function drawTable(all, size) {
  const local = !inUTC(all);
  text("zone", zoneName());
  at("zone").hidden = !local;
  at("rows").replaceChildren(...all.map((w) => {
    const row = document.createElement("tr");
    row.append(make("td", "", stamp(w.start, size, true, true)));
    if (local) row.append(make("td", "", stamp(w.start, size, false, true)));
    row.append(make("td", "number", whole.format(w.count)), make("td", "number", w.capacity === 0 ? "none" : whole.format(w.capacity)));
    return row;
  }));
}

// ---- what people do

function point(place) {
  view.place = place;
  view.pointing = true;
  if (view.windows) drawReadout(list(), sizeMs(view.windows.windowSize));
}

function unpoint() {
  view.pointing = document.activeElement === at("chart");
  if (view.windows) drawReadout(list(), sizeMs(view.windows.windowSize));
}

function page(direction) {
  if (!view.windows) return;
  const first = Date.parse(view.windows.windows[0].start);
  lookFrom(first + direction * WINDOWS * sizeMs(view.windows.windowSize));
}

const EARLIEST = Date.UTC(1900, 0, 1);
const LATEST = Date.UTC(9000, 0, 1) - 1;

function lookFrom(ms) {
  view.from = Math.max(EARLIEST, Math.min(ms, LATEST));
  view.place = 0;
  at("from").value = new Date(view.from).toISOString().slice(0, 19);
  refresh();
}

function listen() {
  at("command").textContent = "curl -X POST " + location.origin + "/admin/rate-limit/config \\\n" +
    "  -H \"Authorization: Bearer $HEADGATE_ADMIN_TOKEN\" \\\n  -H 'Content-Type: application/json' \\\n" +
    "  -d '{\"configName\":\"default\",\"maxPerWindow\":100,\"windowSize\":\"PT4S\"}'";
  at("chart").addEventListener("keydown", (e) => {
    const last = at("bars").children.length - 1;
    const to = { ArrowLeft: view.place - 1, ArrowDown: view.place - 1, ArrowRight: view.place + 1, ArrowUp: view.place + 1,
      PageUp: view.place + 10, PageDown: view.place - 10, Home: 0, End: last }[e.key];
    if (to === undefined) return;
    e.preventDefault();
    point(Math.max(0, Math.min(to, last)));
  });
  at("chart").addEventListener("focus", () => point(view.place));
  at("chart").addEventListener("blur", unpoint);
  at("bars").addEventListener("pointermove", (e) => {
    const box = at("bars").getBoundingClientRect();
    const n = at("bars").children.length;
    point(Math.max(0, Math.min(n - 1, Math.floor((e.clientX - box.left) / box.width * n))));
  });
  at("bars").addEventListener("pointerleave", unpoint);
  at("earlier").addEventListener("click", () => page(-1));
  at("later").addEventListener("click", () => page(1));
  at("now").addEventListener("click", () => { view.from = null; view.place = 0; refresh(); });
  at("look").addEventListener("submit", (e) => e.preventDefault());
  at("from").addEventListener("change", (e) => {
    const ms = Date.parse(e.target.value + "Z");
    if (!Number.isNaN(ms)) lookFrom(ms);
  });
  at("details").addEventListener("toggle", () => { if (view.windows) drawChosen(); });
  addEventListener("resize", () => { if (view.windows) drawChosen(); });
  addEventListener("hashchange", () => { view.wanted = decodeHash(); refresh(); });
  document.addEventListener("visibilitychange", () => { if (!document.hidden) refresh(); });
}

listen();
refresh();
