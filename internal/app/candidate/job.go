package candidate

import (
	"strings"

	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/ratelimit"
)

// A job is a request to decide, or that one has ended or is still in flight.
type job struct {
	req     ratelimit.Request
	resp    ratelimit.Response
	refused bool // by the live rules
	rule    string
	holder  string // of the live lease
	ended   bool   // the request with this lease has ended; only how and cost are set besides
	renewed bool   // the request with this lease is still in flight; nothing is set besides
	how     ratelimit.ReservationEnd
	cost    int64
	may     ratelimit.Estimate
	size    int64 // bytes, as sizeOf says
}

// About how many bytes a descriptor and an entry take beside their texts.
const descriptorSize, entrySize = 96, 32

// sizeOf returns how many bytes the text of a request has, and how many a copy of it takes.
func sizeOf(r *ratelimit.Request) (text int, all int64) {
	for i := range r.Descriptors {
		entries := r.Descriptors[i].Entries
		all += descriptorSize + entrySize*int64(len(entries))
		for j := range entries {
			text += len(entries[j].Key) + len(entries[j].Value)
		}
	}
	return text, all + int64(text)
}

// forget drops all texts from the job.
func (j *job) forget() {
	all := j.req.Descriptors
	clear(all)
	*j = job{req: ratelimit.Request{Descriptors: all[:0]}, resp: j.resp}
}

// copy copies what is asked, since the request's memory is used again. The holder has a copy of its own, as it
// outlives the rest.
func (j *job) copy(a *ratelimit.Asked, domain string, size int) {
	from, to := a.Request, &j.req
	var text strings.Builder
	text.Grow(size)
	for i := range from.Descriptors {
		for _, e := range from.Descriptors[i].Entries {
			text.WriteString(e.Key)
			text.WriteString(e.Value)
		}
	}
	rest := text.String()
	next := func(like string) (s string) {
		s, rest = rest[:len(like)], rest[len(like):]
		return s
	}
	*to = ratelimit.Request{Domain: domain, Hits: from.Hits, InProcess: true, Descriptors: to.Descriptors[:0]}
	j.refused, j.rule, j.ended, j.renewed = a.Refused, a.Rule, false, false
	j.may = ratelimit.Estimate{Units: uint64(a.Estimate), AsSent: true}
	to.Estimate = &j.may
	j.holder = strings.Clone(a.Holder)
	to.ID = j.holder
	for i := range from.Descriptors {
		d := from.Descriptors[i]
		entries := make([]descriptors.Entry, len(d.Entries))
		for n, e := range d.Entries {
			entries[n] = descriptors.Entry{Key: next(e.Key), Value: next(e.Value)}
		}
		d.Entries = entries
		if a.Asks(i) {
			to.Descriptors = append(to.Descriptors, d)
		}
	}
}
