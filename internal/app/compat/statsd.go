package compat

import (
	"net"
	"strings"
)

// sendsStats reports whether metrics are sent to a collector. A variable must ask for that: the reference sends them to
// localhost by default.
func (t *translation) sendsStats() bool {
	return t.set("USE_STATSD") && t.on("USE_STATSD") && !t.on("DISABLE_STATS")
}

func statsd(t *translation) []string {
	if t.sendsStats() {
		return []string{net.JoinHostPort(t.text("STATSD_HOST"), t.text("STATSD_PORT"))}
	}
	if !t.set("USE_STATSD") && !t.on("DISABLE_STATS") && !t.on("USE_PROMETHEUS") && !t.on("USE_DOG_STATSD") {
		t.warn("USE_STATSD is not set, and no metrics are sent; the reference sends them to STATSD_HOST:STATSD_PORT, here "+
			"%s: set USE_STATSD=true for that, or USE_STATSD=false", net.JoinHostPort(t.text("STATSD_HOST"),
			t.text("STATSD_PORT")))
	}
	return nil
}

func extraTags(t *translation) []string {
	tags := list("EXTRA_TAGS")(t)
	for _, tag := range tags {
		if !strings.Contains(tag, ":") {
			t.failf("EXTRA_TAGS", "want key:value, separated by commas, not %q", tag)
		}
	}
	if tags != nil && !t.sendsStats() {
		t.warn("EXTRA_TAGS: labels are not added to metrics for Prometheus: let it add them as it scrapes")
		return nil
	}
	return tags
}
