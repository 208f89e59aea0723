"""What Schemathesis cannot know from the OpenAPI document: bounds in bytes and in decimal
places, and keys that paths of URLs cannot have."""

import re
import urllib.parse

import schemathesis

MAX_KEY = 4096


def key_fits(key):
    """Whether a key is none of those that fit the schema and are refused all the same."""
    if not isinstance(key, str):
        return True
    key = urllib.parse.unquote(key)
    # Schemathesis makes such keys for paths, although they do not fit the pattern.
    if re.search(r"%(?![0-9A-Fa-f]{2})|(^|/)\.\.?(/|$)", key):
        return False
    return len(key) > MAX_KEY or len(key.encode("utf-8", "surrogatepass")) <= MAX_KEY


def capacity_fits(body):
    """Whether a capacity is none of those that only some types, or some rates, can have."""
    capacity, rate = body.get("capacity"), body.get("refillRate")
    if not isinstance(capacity, (int, float)) or capacity > 1 << 40:
        return True
    if body.get("type") == "TOKEN_BUCKET":
        if not isinstance(rate, (int, float)):
            return True
        return capacity <= rate * 1e6 and (rate <= 1e5 or rate == int(rate))
    most = {"SLIDING_WINDOW": 10_000, "SLIDING_WINDOW_COUNTER": 1 << 32}
    return capacity <= most.get(str(body.get("type")), 1 << 40)


DURATION = r"(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|ms|s|m|h|d|w))+"
RATE = (
    r" *[0-9]+ */ *(s|sec|second|min|minute|h|hour|d|day|w|week|month|year|" + DURATION + ") *"
)


def whole(n):
    """Whether n is a number that the schema allows for limits."""
    return isinstance(n, int) and not isinstance(n, bool) and 0 <= n <= 1 << 40


def within_bounds(body):
    """Brings what fits the schema into the bounds that each algorithm has."""
    for name, form, good in (("window", DURATION, "90s"), ("rate", RATE, "5/s")):
        if isinstance(body.get(name), str) and re.fullmatch(form, body[name]):
            body[name] = good
    if whole(body.get("limit")):
        body["limit"] %= 10_001
    if whole(body.get("burst")) and body["burst"]:
        body["burst"] = 1 + body["burst"] % 1000


@schemathesis.hook
def filter_case(context, case):
    body = case.body if isinstance(case.body, dict) else {}
    path = dict(case.path_parameters or {}).get("key")
    # It takes an empty header, which the pattern does not allow, for right.
    if dict(case.headers or {}).get("If-Match", "*") != "*":
        return False
    # Both sets of words must say the same, which it cannot know.
    if not capacity_fits(body) or "algorithm" in body and "type" in body:
        return False
    # Nothing is deleted by a dry run, which Schemathesis cannot know.
    if case.method == "DELETE" and dict(case.query or {}).get("dryRun") == "true":
        return False
    if not key_fits(path) or not key_fits(body.get("key")):
        return False
    # A query may ask for keys that paths cannot have; only their bounds in bytes are unknown to it.
    asked = dict(case.query or {}).get("key")
    if isinstance(asked, str) and len(asked) <= MAX_KEY < len(asked.encode("utf-8", "surrogatepass")):
        return False
    # A policy keeps its key: the body must not have another.
    return path is None or "key" not in body or body["key"] == path


@schemathesis.hook
def map_headers(context, headers):
    """Any other ETag than that of the policy is answered with 412, which Schemathesis takes for
    the refusal of a valid request."""
    if headers and "If-Match" in headers:
        headers["If-Match"] = "*"
    return headers


@schemathesis.hook
def map_body(context, body):
    """Amounts have at most six decimal places, and limits have bounds."""
    if isinstance(body, dict):
        within_bounds(body)
        for name in ("refillRate", "windowSeconds"):
            if isinstance(body.get(name), float):
                body[name] = round(body[name], 6) or (1e-6 if body[name] else 0)
    return body
