// What the pages share: asking with a token, signing in, small helpers.
"use strict";

const PATIENCE = 15000; // ms until a request counts as failed

const at = (id) => document.getElementById(id);

let token = ""; // kept here and nowhere else

// ask returns the status, the ETag and the body of an answer; an answer with an error is an Error that has
// its status.
async function ask(method, path, body, etag) {
  const headers = {};
  if (token) headers.Authorization = "Bearer " + token;
  if (body) headers["Content-Type"] = "application/json";
  if (etag) headers["If-Match"] = etag;
  let response;
  try {
    response = await fetch(path, {
      method, headers, cache: "no-store", credentials: "same-origin", signal: AbortSignal.timeout(PATIENCE),
      body: body ? JSON.stringify(body) : undefined,
    });
  } catch {
    throw Object.assign(new Error("The server does not answer. Try again."), { status: 0 });
  }
  const answer = response.status === 204 ? null : await response.json().catch(() => null);
  if (!response.ok) {
    const text = answer && answer.message ? answer.message : "status " + response.status;
    throw Object.assign(new Error("The server says: " + text), { status: response.status });
  }
  return { status: response.status, etag: response.headers.get("ETag"), body: answer };
}

// element returns one with a text, or with children.
function element(name, ...inside) {
  const e = document.createElement(name);
  e.append(...inside);
  return e;
}

function problem(text) {
  at("alert").hidden = text === "";
  at("alert").textContent = text;
}

// login asks for a token, unless the server has none that would do.
function login(error) {
  const off = error.message.includes("the admin API is disabled");
  at("state").textContent = off ? "Disabled" : "Not signed in";
  at("login-part").hidden = off;
  problem(token || off ? error.message : "");
  token = "";
  at("token").value = "";
  if (!off) at("token").focus();
}

// signedIn calls what to do when somebody has given a token: in the form, or behind # in the address, which is what
// make run prints. Servers never see that part.
function signedIn(then) {
  at("login").addEventListener("submit", (event) => {
    event.preventDefault();
    token = at("token").value.trim();
    then();
  });
  const given = new URLSearchParams(location.hash.slice(1)).get("token");
  if (given) {
    token = given;
    history.replaceState(null, "", location.pathname);
  }
}

// here marks the link to the page that is shown.
function here() {
  for (const link of document.querySelectorAll("nav a")) {
    if (link.getAttribute("href") === location.pathname) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
}
