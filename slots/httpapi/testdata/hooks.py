"""What Schemathesis cannot know from the OpenAPI document: values of formats that
are not among the common ones, and bounds that JSON Schema cannot say."""

import base64
import datetime
import json

import schemathesis
from hypothesis import strategies as st

MAX_BYTES = {"eventId": 50, "configName": 128, "scope": 128, "name": 128, "config": 128}


def instants():
    offsets = st.sampled_from(["Z", "z", "+00:00", "-00:00", "+05:30", "-23:59", "+14:00"])
    fractions = st.text("0123456789", max_size=9).map(lambda f: "." + f if f else "")
    days = st.datetimes(datetime.datetime(1900, 1, 2), datetime.datetime(8999, 12, 30))
    return st.builds(lambda d, f, o: d.strftime("%Y-%m-%dT%H:%M:%S").rjust(19, "0") + f + o, days, fractions, offsets)


def duration(ms):
    seconds = f"{ms // 1000}.{ms % 1000:03}".rstrip("0").rstrip(".")
    return f"PT{seconds}S"


def cursor(us):
    return base64.urlsafe_b64encode(f"{us}.0197-id".encode()).decode().rstrip("=")


def hours():
    def order(a, b):
        a, b = sorted((a, b if a != b else (b + 1) % 1440))
        return f"{a // 60:02}:{a % 60:02}-{b // 60:02}:{b % 60:02}"

    return st.builds(order, st.integers(0, 1439), st.integers(0, 1439))


def weekdays():
    day = st.sampled_from("mon tue wed thu fri sat sun".split())
    return day | st.builds("{}-{}".format, day, day)


dates = st.dates(datetime.date(1970, 1, 1), datetime.date(2100, 1, 1)).map(str)

for name, strategy in {
    "date-time": instants(),
    "window-size": st.integers(100, 86_400_000).map(duration) | st.sampled_from(["P1D", "PT4S", "pt1m", "PT1H30M"]),
    "max-delay": st.integers(86_400_000, 400 * 86_400_000).map(duration),
    "cursor": st.integers(-2_000_000_000_000_000, 2_000_000_000_000_000).map(cursor),
    "iana-time-zone": st.sampled_from(["UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata"]),
    "opening-hours": st.builds("{} {}".format, weekdays(), hours()),
    "closing": dates | st.builds("{} {}".format, dates, hours()),
}.items():
    schemathesis.openapi.format(name, strategy)


def fits(value, name=None):
    """Whether texts are within their bounds in bytes, and calendars in theirs."""
    if isinstance(value, dict):
        entries = sum(len(value.get(k) or []) for k in ("open", "closed") if isinstance(value.get(k) or [], list))
        if "zone" in value and (entries > 50 or len(json.dumps(value)) > 2000):
            return False
        return all(fits(v, k) for k, v in value.items())
    if isinstance(value, str) and name in MAX_BYTES:
        return len(value) > MAX_BYTES[name] or len(value.encode("utf-8", "surrogatepass")) <= MAX_BYTES[name]
    return True


@schemathesis.hook
def filter_case(context, case):
    """Texts that are short enough in characters, but not in bytes, are refused,
    although they fit the schema."""
    return fits(case.body) and fits(dict(case.query or {})) and fits(dict(case.path_parameters or {}))
