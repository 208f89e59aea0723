package middleware

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"unicode/utf8"

	"github.com/headgate-rls/headgate"
	"github.com/headgate-rls/headgate/internal/kit/background"
	"github.com/headgate-rls/headgate/internal/kit/web"
)

// Config says how requests are described, and how they are answered.
type Config struct {
	// Domain is that of the rules. It is required.
	Domain string
	// Descriptors describe a request, each to other rules. All limits that apply must have
	// room. None means one descriptor, the key "client" with [ClientIP].
	Descriptors []Descriptor
	// Values are for rules by method and path that count by others than headers: how to find remote_address,
	// masked_remote_address and claims, such as jwt.sub, in a request. Without Values the addresses are those of
	// [ClientIP]. Requests without a value count together.
	Values []Entry

	// Hold says how long a request counts as one in flight. With Estimate it is UntilReturn: only then is its cost known.
	Hold Hold
	// Estimate has requests reserve units by rules with reserve: it returns what a request may
	// cost, 0 if that is not known. The handler says by [Spend] what it has cost.
	Estimate func(r *http.Request) uint64
	// Headers says which headers describe the limit that is closest to refusing.
	Headers Headers
	// OnError answers requests that the limiter cannot decide, such as those of a rule
	// with on_backend_error: error. Nil means the status 503 with the body of all errors.
	// A handler that calls next itself lets such requests pass.
	OnError func(w http.ResponseWriter, r *http.Request, next http.Handler, err error)
}

// A Hold says when the lease of a request in flight ends.
type Hold uint8

const (
	// UntilResponse: when the handler returns or panics, when it takes the connection over
	// (hijacks it), or when the client leaves, whichever is first. A handler that goes on
	// without its client then counts no more.
	UntilResponse Hold = iota
	// UntilReturn: when the handler returns or panics, whatever becomes of the client.
	// Choose it where clients could start costly work and leave many times.
	UntilReturn
)

// Headers says which headers answers have.
type Headers uint8

// The sets of headers.
const (
	XRateLimit  Headers = iota // X-RateLimit-Limit and X-RateLimit-Remaining
	IETF                       // RateLimit and RateLimit-Policy, of draft-ietf-httpapi-ratelimit-headers-10
	BothHeaders                // all four
	NoHeaders                  // none of them
)

// A handler limits requests.
type handler struct {
	limiter *headgate.Limiter
	conf    Config
	plain   bool // requests have one descriptor of one entry, unless rules ask for more
	most    *number
	next    http.Handler
}

// Handler returns what puts the limiter in front of a handler. It panics if the Config has
// no domain, or a descriptor without keys or values: mistakes of a program, not of a
// request.
//
// A request is charged once for each descriptor, however many of these middlewares it
// passes: one that finds a request described as before lets it pass.
func Handler(limiter *headgate.Limiter, conf Config) func(next http.Handler) http.Handler {
	if len(conf.Descriptors) == 0 {
		conf.Descriptors = []Descriptor{{{Key: "client", Value: ClientIP()}}}
	}
	if err := conf.check(limiter); err != nil {
		panic("middleware: " + err.Error())
	}
	if conf.OnError == nil {
		conf.OnError = unavailable
	}
	plain := len(conf.Descriptors) == 1 && len(conf.Descriptors[0]) == 1
	return func(next http.Handler) http.Handler { return &handler{limiter, conf, plain, new(number), next} }
}

func (c *Config) check(limiter *headgate.Limiter) error {
	switch {
	case limiter == nil:
		return errors.New("the limiter is nil")
	case c.Domain == "":
		return errors.New("Config.Domain is empty")
	case c.Hold > UntilReturn:
		return fmt.Errorf("Config.Hold is %d, which is not known", c.Hold)
	case c.Headers > NoHeaders:
		return fmt.Errorf("Config.Headers is %d, which is not known", c.Headers)
	}
	for i, e := range c.Values {
		if e.Key == "" || e.Value == nil {
			return fmt.Errorf("Config.Values[%d] needs a Key and a Value", i)
		}
	}
	for i, d := range c.Descriptors {
		if len(d) == 0 {
			return fmt.Errorf("Config.Descriptors[%d] has no entries", i)
		}
		for j, e := range d {
			if e.Key == "" || e.Value == nil {
				return fmt.Errorf("Config.Descriptors[%d][%d] needs a Key and a Value", i, j)
			}
		}
	}
	return nil
}

// unavailable is the default of Config.OnError.
func unavailable(w http.ResponseWriter, r *http.Request, _ http.Handler, err error) {
	if r.Context().Err() == nil { // else nobody reads it
		status := http.StatusServiceUnavailable
		if errors.Is(err, headgate.ErrInvalid) {
			status = http.StatusInternalServerError
		}
		web.Error(w, status, "the request cannot be counted against its limits")
	}
}

// ServeHTTP implements [http.Handler].
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	v := h.describe(r)
	if len(v.list) == 0 {
		h.next.ServeHTTP(w, r)
		return
	}
	if h.conf.Estimate != nil {
		h.reserve(w, r, v)
		return
	}
	lease, d, err := h.limiter.Acquire(r.Context(), h.conf.Domain, v.list...)
	if err != nil {
		h.conf.OnError(w, r, h.next, err)
		return
	}
	if !lease.Held() {
		h.answer(w, r, v, &d)
		return
	}
	defer lease.Release() // also if the handler panics
	if h.conf.Hold == UntilResponse {
		defer context.AfterFunc(r.Context(), lease.Release)()
		w = notifyHijack(w, lease.Release)
	}
	h.answer(w, r, v, &d)
}

// reserve limits a request whose cost is known afterwards.
func (h *handler) reserve(w http.ResponseWriter, r *http.Request, v *visit) {
	reserved, d, err := h.limiter.Reserve(r.Context(), h.conf.Domain, h.conf.Estimate(r), v.list...)
	if err != nil {
		h.conf.OnError(w, r, h.next, err)
		return
	}
	failed, left := true, false // failed: the handler did not return; left: the client left before
	defer func() {
		switch {
		case v.spent.known.Load():
			reserved.Settle(v.spent.units.Load())
		case left:
			reserved.Cancel()
		default:
			reserved.Release(failed)
		}
	}()
	left = !h.answer(w, r, v, &d)
	failed = false
}

// Spend says what a request has cost whose units the middleware has reserved (Config.Estimate):
// so many units more. A handler calls it with the request that it got, once or as often as it
// learns more. It does nothing for other requests.
func Spend(r *http.Request, units uint64) {
	v, _ := r.Context().Value(visitKey{}).(*visit)
	for ; v != nil; v = v.before {
		v.spend(units)
	}
}

// spend adds units. The sum stays at the largest number, where it would begin anew at 0.
func (v *visit) spend(units uint64) {
	for {
		before := v.spent.units.Load()
		if v.spent.units.CompareAndSwap(before, before+min(units, math.MaxUint64-before)) {
			break
		}
	}
	v.spent.known.Store(true)
}

// answer refuses the request or passes it on. It reports false if the client left before that.
func (h *handler) answer(w http.ResponseWriter, r *http.Request, v *visit, d *headgate.Decision) bool {
	if d.Delay > 0 && background.Sleep(r.Context(), d.Delay) != nil {
		return false
	}
	v.remaining = d.Remaining
	if v.closest(d) {
		h.conf.Headers.set(w.Header(), d, &v.values, h.most)
	}
	if !d.Allowed {
		refuse(w, d)
		return true
	}
	v.request = *r.WithContext(v) // in the memory of v: one piece in place of two
	// The server removes the files of a form, and looks for them in its own request.
	defer func() { r.MultipartForm = cmp.Or(v.request.MultipartForm, r.MultipartForm) }()
	h.next.ServeHTTP(w, &v.request)
	return true
}

// describe returns the visit with the descriptors that the request is not charged for yet.
func (h *handler) describe(r *http.Request) *visit {
	needs := h.limiter.Resources(h.conf.Domain)
	v, entries := newVisit(h.plain && !needs.Any)
	v.Context, v.handler = r.Context(), h
	v.before, _ = v.Context.Value(visitKey{}).(*visit)
	for _, d := range h.conf.Descriptors {
		from := len(entries)
		var ok bool
		if entries, ok = d.appendTo(entries, r); !ok {
			entries = entries[:from]
			continue
		}
		v.add(entries[from:len(entries):len(entries)])
	}
	if needs.Any {
		v.add(h.describeResource(r, &needs))
	}
	return v
}

// appendTo appends the values of a request, unless one is missing.
func (d Descriptor) appendTo(entries []headgate.Entry, r *http.Request) ([]headgate.Entry, bool) {
	for _, e := range d {
		value, ok := e.Value(r)
		if !ok {
			return entries, false
		}
		entries = append(entries, headgate.Entry{Key: e.Key, Value: text(value)})
	}
	return entries, true
}

// describeResource describes a request to rules by method and path.
func (h *handler) describeResource(r *http.Request, needs *headgate.Resources) []headgate.Entry {
	entries := []headgate.Entry{{Key: "method", Value: text(r.Method)}, {Key: "path", Value: text(target(r.URL))}}
	for _, name := range needs.Headers {
		if value := header(r, http.CanonicalHeaderKey(name)); value != "" {
			entries = append(entries, headgate.Entry{Key: "header." + name, Value: text(value)})
		}
	}
	for _, name := range needs.Entries {
		if value, ok := h.value(r, name); ok {
			entries = append(entries, headgate.Entry{Key: name, Value: text(value)})
		}
	}
	if needs.SOAPAction {
		if action := r.Header.Get("SOAPAction"); action != "" {
			entries = append(entries, headgate.Entry{Key: "soap_action", Value: text(action)})
		}
	}
	return entries
}

// value returns what rules by method and path count a request by.
func (h *handler) value(r *http.Request, name string) (string, bool) {
	for i := range h.conf.Values {
		if e := &h.conf.Values[i]; e.Key == name {
			return e.Value(r)
		}
	}
	if find := addresses[name]; find != nil {
		return find(r)
	}
	return "", false
}

// addresses are how addresses of clients are found unless a Config says otherwise.
var addresses = map[string]Extractor{
	"remote_address":        ClientIP(IPv6Bits(128)),
	"masked_remote_address": ClientIP(),
}

// target is a request's path with its query. A client can also write "x:y" or "*" in the place of a
// path; handlers that do not look at the path serve such a request like any other, so that it counts as
// one for "/".
func target(u *url.URL) string {
	if u.Opaque != "" || !strings.HasPrefix(u.Path, "/") {
		return (&url.URL{Path: "/", RawQuery: u.RawQuery}).RequestURI()
	}
	return u.RequestURI()
}

// text returns s with every byte that is no text replaced. Clients can send any bytes.
func text(s string) string {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf { // most texts are short, and have none of these
			return strings.ToValidUTF8(s, "\uFFFD")
		}
	}
	return s
}

// A visit is a request on its way through one middleware, and the context in which it goes
// on.
type visit struct {
	context.Context
	before    *visit // of a middleware further out, nil without one
	handler   *handler
	request   http.Request // that goes on
	list      []headgate.Descriptor
	remaining int64     // of the limit that is closest to refusing
	values    [2]string // of headers of the response
	spent     struct {
		units atomic.Uint64
		known atomic.Bool
	}
}

type visitKey struct{}

// newVisit returns a visit, and room for entries in the same piece of memory. A plain one
// has one descriptor of one entry.
func newVisit(plain bool) (*visit, []headgate.Entry) {
	if plain {
		v := new(struct {
			visit
			list    [1]headgate.Descriptor
			entries [1]headgate.Entry
		})
		v.visit.list = v.list[:0]
		return &v.visit, v.entries[:0]
	}
	v := new(struct {
		visit
		list    [2]headgate.Descriptor
		entries [4]headgate.Entry
	})
	v.visit.list = v.list[:0]
	return &v.visit, v.entries[:0]
}

// Value implements [context.Context].
func (v *visit) Value(key any) any {
	if _, ok := key.(visitKey); ok {
		return v
	}
	return v.Context.Value(key)
}

// add adds a descriptor, unless the request is charged for it already.
func (v *visit) add(entries []headgate.Entry) {
	for b := v; b != nil; b = b.before {
		if b.handler.limiter != v.handler.limiter || b.handler.conf.Domain != v.handler.conf.Domain {
			continue
		}
		for i := range b.list {
			if slices.Equal(b.list[i].Entries, entries) {
				return
			}
		}
	}
	v.list = append(v.list, headgate.Descriptor{Entries: entries})
}

// closest reports whether d is about a limit closer to refusing than those before.
func (v *visit) closest(d *headgate.Decision) bool {
	if d.Rule == "" {
		return false
	}
	for b := v.before; b != nil && d.Allowed; b = b.before {
		if b.remaining < d.Remaining {
			return false
		}
	}
	return true
}
