package compat

import (
	"net"
	"strings"
)

// sendsStats reports whether metrics are sent to a collector, as by default. The reference does not start if it is to
// serve them for Prometheus, too, unless USE_STATSD is false.
func (t *translation) sendsStats() bool {
	plain := t.on("USE_STATSD") && (t.set("USE_STATSD") || !t.on("USE_PROMETHEUS"))
	return (plain || t.on("USE_DOG_STATSD")) && !t.on("DISABLE_STATS")
}

func statsd(t *translation) []string {
	if t.sendsStats() {
		return []string{net.JoinHostPort(t.text("STATSD_HOST"), t.text("STATSD_PORT"))}
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
