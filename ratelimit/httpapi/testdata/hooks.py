"""What Schemathesis cannot know from the OpenAPI document: bounds in bytes, keys that paths of URLs
cannot have, and which cursors there are."""

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
    if isinstance(dict(case.query or {}).get("after"), str):
        return False
    key = dict(case.path_parameters or {}).get("key")
    return not isinstance(key, str) or key_fits(key)
