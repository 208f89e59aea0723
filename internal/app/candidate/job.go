package candidate

import (
	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/ratelimit"
)

// A job is a request to decide, or the end of one.
type job struct {
	req     ratelimit.Request
	resp    ratelimit.Response
	refused bool // by the live rules
	rule    string
	holder  string // of the live lease
	ended   bool   // the request with this lease has ended; only how and cost are set besides
	how     ratelimit.ReservationEnd
	cost    int64
	may     ratelimit.Estimate
	text    []byte
}

// copy copies what is asked, since the request's memory is used again.
func (j *job) copy(a *ratelimit.Asked) {
	from, to := a.Request, &j.req
	j.text = append(append(j.text[:0], from.Domain...), a.Holder...)
	for i := range from.Descriptors {
		for _, e := range from.Descriptors[i].Entries {
			j.text = append(append(j.text, e.Key...), e.Value...)
		}
	}
	rest := string(j.text)
	next := func(like string) (s string) {
		s, rest = rest[:len(like)], rest[len(like):]
		return s
	}
	*to = ratelimit.Request{Domain: next(from.Domain), Hits: from.Hits, InProcess: true, Descriptors: to.Descriptors[:0]}
	j.refused, j.rule, j.ended = a.Refused, a.Rule, false
	j.may = ratelimit.Estimate{Units: uint64(a.Estimate), AsSent: true}
	to.Estimate = &j.may
	j.holder = next(a.Holder)
	to.ID = j.holder
	for i := range from.Descriptors {
		d := from.Descriptors[i]
		entries := make([]descriptors.Entry, len(d.Entries))
		for n, e := range d.Entries {
			entries[n] = descriptors.Entry{Key: next(e.Key), Value: next(e.Value)}
		}
		if d.Entries = entries; a.Asks(i) {
			to.Descriptors = append(to.Descriptors, d)
		}
	}
}
