package candidate

import (
	"net/http"
	"strconv"
	"time"

	"github.com/headgate-rls/headgate/internal/kit/units"
	"github.com/headgate-rls/headgate/internal/kit/web"
)

// An Answer is what GET /admin/candidate says.
type Answer struct {
	Deciding bool       `json:"deciding"` // there are rules on trial
	Loaded   *time.Time `json:"loaded,omitempty"`
	Error    string     `json:"error,omitempty"` // of the last reading of the rules; the former ones stay on trial
	Sample   float64    `json:"sample"`
	Since    *time.Time `json:"since,omitempty"` // when what is counted begins
	counts
	Dropped int64 `json:"dropped"` // since the start
	Failed  int64 `json:"failed"`
	// Forgotten are counters in use that were dropped for want of room: above zero, figures may be wrong.
	Forgotten int64     `json:"forgotten"`
	Rules     []RuleRow `json:"rules"`
	Keys      []KeyRow  `json:"keys"`
}

const (
	defaultSince = time.Hour
	maxSince     = minutes * time.Minute
	maxTop       = 256
)

// Compare returns what has come of the rules on trial in the last time, which is counted by the minute.
func (k *Candidate) Compare(since time.Duration, top int) Answer {
	s := k.state.Load()
	a := Answer{Error: s.Error, Sample: k.conf.Sample, Dropped: k.dropped.Value(), Failed: k.failed.Value()}
	if k.conf.Evicted != nil {
		a.Forgotten = k.conf.Evicted()
	}
	if r := k.rules.Load(); r != nil {
		now := time.Now()
		from := now.Add(-since)
		if from.Before(r.since) {
			from = r.since
		}
		a.Deciding, a.Loaded, a.Since = true, &s.Loaded, &from
		a.counts, a.Rules, a.Keys = r.sum(from, now, top)
	}
	return a
}

// ServeHTTP answers with the comparison, by the parameters since and top.
func (k *Candidate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		web.Error(w, http.StatusMethodNotAllowed, "only GET and HEAD are allowed")
		return
	}
	since, top := defaultSince, 20
	query := r.URL.Query()
	for name := range query {
		if name != "since" && name != "top" {
			web.Error(w, http.StatusBadRequest, "unknown parameter "+strconv.Quote(name)+"; known are since and top")
			return
		}
	}
	var err error
	if text := query.Get("since"); text != "" {
		if since, err = units.ParseDuration(text); err != nil || since <= 0 || since > maxSince {
			web.Error(w, http.StatusBadRequest, "since must be a duration up to 24h, such as 1h")
			return
		}
	}
	if text := query.Get("top"); text != "" {
		if top, err = strconv.Atoi(text); err != nil || top < 0 || top > maxTop {
			web.Error(w, http.StatusBadRequest, "top must be a number from 0 to 256")
			return
		}
	}
	web.JSON(w, http.StatusOK, k.Compare(since, top))
}
