"""What Schemathesis cannot know from the OpenAPI document: bounds in bytes, keys that paths of URLs
cannot have, which cursors there are, and which parameters go together."""

import re
import urllib.parse

import schemathesis

MAX_KEY = 4096
KEY = re.compile(r"([^%|]|%[0-9A-Fa-f]{2})+(\|([^%|=]|%[0-9A-Fa-f]{2})+(=([^%|]|%[0-9A-Fa-f]{2})*)?)+", re.DOTALL)


def key_fits(key):
    """Whether a key is none of those that fit the schema and are refused all the same."""
    key = urllib.parse.unquote(key)
    if not KEY.fullmatch(key) or re.search(r"(^|/)\.\.?(/|$)", key):
        return False
    try:
        urllib.parse.unquote(key, errors="strict")
    except UnicodeDecodeError:
        return False
    return len(key) > MAX_KEY or len(key.encode("utf-8", "surrogatepass")) <= MAX_KEY


@schemathesis.hook
def filter_case(context, case):
    query = dict(case.query or {})
    if isinstance(query.get("after"), str):
        return False
    if case.path == "/admin/explain":
        # One of them has to be there, and the schema of parameters cannot say so.
        if sorted(query) not in (["key"], ["request_id"], ["descriptor", "domain"]):
            return False
        if "descriptor" in query and not re.search("^[^=,]+=[^,]*$", str(query["descriptor"])):
            return False
    if isinstance(query.get("key"), str) and not key_fits(query["key"]):
        return False
    key = dict(case.path_parameters or {}).get("key")
    return not isinstance(key, str) or key_fits(key)


@schemathesis.hook
def before_call(context, case, *rest):
    # Examples are not filtered.
    if case.path == "/admin/explain" and "key" in (case.query or {}):
        case.query.pop("domain", None)
