package web

import (
	"net/http"

	"github.com/headgate-rls/headgate/internal/kit/metrics"
)

// refusedRow is the metric of requests that guards refuse.
var refusedRow = metrics.Row{Name: "headgate_admin_refused_total", Labels: metrics.Open("code", "reason"),
	Help: "Requests over HTTP that were refused: to admin paths, and to those of slots with --slots-auth, without a " +
		"token or with a wrong one, or from another network; to these, to /json, slots and the debug port from a page of " +
		"another site; to the debug port by a host name that is not in --debug-host."}

// otherSite is why a request from a page of another site is refused.
const otherSite = "other site"

// refusalReasons are why guards refuse.
var refusalReasons = []struct {
	code   int
	reason string
}{
	{http.StatusUnauthorized, "no token"},
	{http.StatusUnauthorized, "wrong token"},
	{http.StatusUnauthorized, "bad JWT"},
	{http.StatusServiceUnavailable, "unverified JWT"},
	{http.StatusForbidden, "network"},
	{http.StatusForbidden, otherSite},
	{http.StatusForbidden, "host"},
}

// Rows returns the table of the metrics.
func (r *Refusals) Rows() []metrics.Row { return []metrics.Row{r.row} }

// NoMemory counts the bodies and answers that a listener has no room for.
var NoMemory = metrics.Row{Name: "headgate_http_no_memory_total", Kind: metrics.IsCounter,
	Labels: metrics.Open("transport"), Help: "Bodies and answers over HTTP that there was no room in memory for, whose " +
		"requests got 503, and lines of captures, which were dropped."}

// Rows returns the table of the metrics.
func (t *Turns) Rows() []metrics.Row {
	return []metrics.Row{
		t.Waited.Row("headgate_http_waited_total", "Requests over HTTP, of JSON, admin and pages, that waited for a turn: "+
			"all of them together get half of the cores."),
		t.Refused.Row("headgate_http_refused_total", "Requests over HTTP that got no turn within 2 s and were answered with "+
			"503, or whose client left."),
	}
}
