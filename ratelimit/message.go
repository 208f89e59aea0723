package ratelimit

import (
	"fmt"
	"math"
	"math/bits"
	"strings"
	"time"
	"unicode/utf8"
	"unsafe"

	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/internal/kit/units"
	"github.com/headgate-rls/headgate/limit"
	"github.com/headgate-rls/headgate/ratelimit/leases"
)

// A Request is one decoded RateLimitRequest.
type Request struct {
	Domain      string
	Descriptors []Descriptor
	// Hits is the request's hits_addend; zero counts as one.
	Hits uint32

	// ID, Owner and LeaseKey come with the call, not in the message: see
	// MetadataID, MetadataOwner and MetadataLeaseKey.
	ID, Owner, LeaseKey string
	// RequestID is the caller's name for the request, for the log; see MetadataRequestID.
	RequestID string
	// Diagnoses has the answer say whether the domain is unknown; see MetadataAsk.
	Diagnoses bool
	// Peer is the identity in the caller's certificate, "" without one. Owners
	// with the same name and different peers are different owners.
	Peer string
	// Parent is the span of a caller in this process, or nil if the caller has no span.
	Parent Span
	// TraceParent and TraceState are headers of the call; see MetadataTraceParent.
	TraceParent, TraceState string

	// InProcess says that the caller is in this process. It gets [Response.Inside],
	// and keeps its leases itself: no token is made.
	InProcess bool
	// Estimate has a caller in this process reserve units, by rules with reserve: see
	// [Service.EndReservation]. Others say so in the message.
	Estimate *Estimate
	// Recall caches which rules match, for a request that is sent repeatedly; nil: no cache.
	Recall *Recall
	// Purpose is what the call is for, if more is known than its hits say.
	Purpose Purpose
	// NoLease fails a call that would get a lease, because its caller could not end it.
	NoLease bool

	// Size is the length of the encoded request in bytes; 0 if it was not decoded.
	Size int
}

// A Purpose is what a call is for.
type Purpose uint8

// The purposes.
const (
	ByHits Purpose = iota
	// Asks: it asks whether there is room.
	Asks
	// Holds: it asks for units to be reserved, and its caller brings the token of the reservation back, whatever rules
	// say of matches.
	Holds
	// Reports: its hits are of work that is done. Limits charge them, or what is left, whatever their overflow.
	Reports
	// Commits: it reports, and has a token of a reservation. If the token can be read, rules with reserve charge by it.
	// All others charge the hits.
	Commits
)

// An Estimate is what a request may cost, 0 if that is not known.
type Estimate struct {
	Units uint64
	// AsSent: its descriptors mean what those of a proxy's call mean: with hits it reports, or asks.
	AsSent bool
}

// proxy returns the proxy that sent the request.
func (r *Request) proxy() leases.Proxy { return leases.Proxy{Peer: r.Peer, Name: r.Owner} }

// maxMetadata bounds each value that comes with a call, in bytes. A longer value
// is ignored.
const maxMetadata = 256

// Release drops what a request must not keep that is used again, as the strings of a large message. place is the
// request's place in its slice. Release returns false if the request itself must not be kept.
func (r *Request) Release(place int) bool {
	if r.Size <= smallMessage {
		return true
	}
	r.Domain = ""
	for i := range r.Descriptors {
		clear(r.Descriptors[i].Entries)
	}
	return place < keptLarge
}

// SetMetadata sets the fields that come with the call. It leaves out values that are
// too long or no text.
func (r *Request) SetMetadata(id, owner, leaseKey string) {
	r.ID, r.Owner, r.LeaseKey = metadataText(id), metadataText(owner), metadataText(leaseKey)
}

// SetRequestID sets RequestID in the same way.
func (r *Request) SetRequestID(id string) { r.RequestID = metadataText(id) }

func metadataText(s string) string {
	if len(s) > maxMetadata || !utf8.ValidString(s) {
		return ""
	}
	return s
}

// A Descriptor is one decoded RateLimitDescriptor.
type Descriptor struct {
	Entries []descriptors.Entry
	// Override is the caller's own limit; it takes the place of any rule if
	// its Unit is not zero or HasOverride is set.
	Override    Override
	HasOverride bool
	// Hits is the descriptor's own hits_addend, if HasHits. Zero asks without
	// taking.
	Hits    uint64
	HasHits bool
	// Refund gives the hits back (is_negative_hits, Envoy 1.38 and later).
	Refund bool
}

// An Override is a limit that a request has for one of its descriptors.
type Override struct {
	RequestsPerUnit uint32
	Unit            Unit
	Multiplier      uint32 // zero counts as one
}

// A Unit is the unit of a limit as Envoy's API numbers it. Requests
// (envoy.type.v3.RateLimitUnit) and responses (RateLimitResponse.RateLimit.Unit)
// agree on the numbers.
type Unit int32

// Length returns the unit's length, zero for UNKNOWN and undefined units.
func (u Unit) Length() time.Duration {
	known, _ := units.Numbered(int32(u))
	return known.Length
}

// String returns the unit's name in capitals, as the API spells it.
func (u Unit) String() string {
	if known, ok := units.Numbered(int32(u)); ok {
		return strings.ToUpper(known.Name)
	}
	return "UNKNOWN"
}

// A Response is what to answer to one [Request].
type Response struct {
	// Err, if set, fails the call; the other fields are then meaningless.
	Err *Error
	// OverLimit refuses the request.
	OverLimit bool
	// Statuses has one entry per descriptor, in their order.
	Statuses []Status
	// Headers are added to the response that Envoy sends downstream.
	Headers []descriptors.Header
	// RequestHeaders are added to the request that Envoy sends upstream.
	RequestHeaders []descriptors.Header
	// Body is the body of a refusal.
	Body string
	// Degraded says that a failure policy answered, not the counters.
	Degraded bool
	// Uncounted says that a failure policy answered and did not count, at least for one limit: what
	// the request takes or gives back is nowhere.
	Uncounted bool
	// Token is the token of the reservation, for requests with [Holds]. It is empty if nothing was reserved.
	Token string
	// Inside is for requests with InProcess.
	Inside Inside

	told     bool           // Inside may be filled
	granted  []leases.Grant // leases that the response is about to hand out
	metadata [][]byte       // see Metadata
	token    []byte         // memory of the part with a lease's token
	note     []byte         // memory of the part with the policy that answered
}

// Metadata returns the parts of dynamic_metadata, as the [Encoder] returned them.
func (r *Response) Metadata() [][]byte { return r.metadata }

// An Encoder encodes parts of responses in advance, in the format of the transports. Package internal/wire/messages has
// Envoy's. A service without an Encoder can only answer callers in this process.
type Encoder interface {
	// Limit encodes a limit for statuses, under the operator's name for it; multipliers as in [Config].
	Limit(name string, l *limit.Limit, multipliers bool) []byte
	// Struct encodes a part of dynamic_metadata.
	Struct(m map[string]any) []byte
	// AppendText appends a part of dynamic_metadata that has one text.
	AppendText(b []byte, key, value string) []byte
	// Question encodes a request as a part of dynamic_metadata.
	Question(r *Request) []byte
}

// unsent is the Encoder of a service that has none.
type unsent struct{}

func (unsent) Limit(string, *limit.Limit, bool) []byte { return nil }
func (unsent) Struct(map[string]any) []byte            { return nil }
func (unsent) AppendText(b []byte, _, _ string) []byte { return b }
func (unsent) Question(*Request) []byte                { return nil }

// A Status is the answer to one descriptor.
type Status struct {
	OverLimit bool
	// Remaining is how many hits are left, scaled as the limit is: see [LimitOnWire].
	Remaining uint32
	// Reset is, in seconds rounded up, how long to wait before asking again
	// if OverLimit, else how long until the limit is as good as unused.
	Reset int64

	limit *LimitView // that decided; nil if none did
}

// Limit returns the limit that decided, as the [Encoder] returned it; false if none did.
func (s *Status) Limit() (encoded []byte, ok bool) {
	if s.limit == nil {
		return nil, false
	}
	return s.limit.current, true
}

// An Error is a call that cannot be answered. Code is a gRPC status code.
type Error struct {
	Code    uint32
	Message string
}

func (e *Error) Error() string { return e.Message }

// Invalid reports whether something about the call is wrong: asking again makes no difference.
func (e *Error) Invalid() bool { return e.Code == codeInvalid }

// The gRPC status codes of an [Error].
const (
	codeInvalid     = 3  // INVALID_ARGUMENT
	codeUnavailable = 14 // UNAVAILABLE
)

// What a leases.Grant takes, and each op that gives back, in bytes, without their strings.
const (
	grantSize = int(unsafe.Sizeof(leases.Grant{}))
	opSize    = int(unsafe.Sizeof(limit.Op{}))
)

// undoSize is about how many bytes an undo keeps in memory.
func (r *Response) undoSize() int {
	n := 0
	for i := range r.granted {
		g := &r.granted[i]
		n += grantSize + len(g.Op.Key.Group) + len(g.Op.Holder) + opSize*cap(g.Back)
	}
	return n
}

// reset prepares r for the answer to a request of n descriptors.
func (r *Response) reset(n int) {
	if cap(r.Statuses) < n {
		r.Statuses = make([]Status, n)
	}
	// Field by field: a new Response would be made beside r, and copied.
	r.Forget()
	r.Err, r.OverLimit, r.Body, r.Token, r.Degraded, r.Uncounted = nil, false, "", "", false, false
	r.Statuses, r.Headers, r.RequestHeaders = r.Statuses[:n], r.Headers[:0], r.RequestHeaders[:0]
	r.granted, r.metadata, r.token, r.note = r.granted[:0], r.metadata[:0], r.token[:0], r.note[:0]
	clear(r.Statuses)
}

// inside returns r.Inside, to be filled.
func (r *Response) inside() *Inside {
	r.told = true
	return &r.Inside
}

// Forget drops what r.Inside points to, for those who keep r to use it again.
func (r *Response) Forget() {
	if r.told {
		r.Inside, r.told = Inside{}, false
	}
}

// ceilSeconds returns a wait in whole seconds, rounded up.
func ceilSeconds(d time.Duration) int64 { return int64(d/time.Second + min(d%time.Second, 1)) }

// Statuses have 32 bits for a limit and for what is left of it. Where one of them may need more, both are scaled by the
// same factor, so that what is left stays the same part of the limit.

// wideness returns the figure that becomes 2^32-1, and 0 where all figures fit.
func wideness(l *limit.Limit) int64 {
	if most, _ := l.Quota(); most > math.MaxUint32 {
		return most
	}
	return 0
}

// scaled returns n as statuses have it, rounded down.
func scaled(n, wide int64) uint32 {
	if wide == 0 {
		return uint32(min(n, math.MaxUint32))
	}
	high, low := bits.Mul64(uint64(n), math.MaxUint32)
	of, _ := bits.Div64(high, low, uint64(wide))
	return uint32(min(of, math.MaxUint32))
}

// LimitOnWire returns how many units l has if it is unused, as statuses have it.
func LimitOnWire(l *limit.Limit) uint32 {
	most, _ := l.Quota()
	return scaled(most, wideness(l))
}

func invalid(format string, args ...any) *Error {
	return &Error{Code: codeInvalid, Message: fmt.Sprintf(format, args...)}
}

// A CallResult is how a call ended.
type CallResult uint8

// The results of a call.
const (
	CallOK CallResult = iota
	CallOverLimit
	CallInvalid
	CallFailed // by policy, because the backend failed
	NumCallResults
)

// Observe records calls that ended with the same result after the same time. It may
// be called concurrently.
type Observe func(took time.Duration, r CallResult, calls int)

// String returns the result's metric label.
func (r CallResult) String() string {
	return [NumCallResults]string{"ok", "over_limit", "invalid", "failed"}[r]
}

// Result returns how the call ended that r answers.
func (r *Response) Result() CallResult {
	switch {
	case r.Err != nil && r.Err.Code == codeUnavailable:
		return CallFailed
	case r.Err != nil:
		return CallInvalid
	case r.OverLimit:
		return CallOverLimit
	}
	return CallOK
}

// A descriptor whose first entry has the key OpKey does something to the lease
// whose token its second entry, LeaseEntry, has: OpRelease ends it, leases.Renew
// moves its end away. See [leases.Action] for more.
const (
	OpKey      = "headgate.op"
	OpRelease  = string(leases.Release)
	LeaseEntry = "lease"
)

// Names of request metadata (gRPC headers) that say more about a call.
const (
	// MetadataID is the same when the call is repeated: a repeated call gets
	// the lease that it got before, and is charged once.
	MetadataID = "x-headgate-id"
	// MetadataOwner names the proxy, for leases to go when it does.
	MetadataOwner = "x-headgate-owner"
	// MetadataLeaseKey is the name under which the token goes into
	// dynamic_metadata; without it that is DefaultLeaseKey.
	MetadataLeaseKey = "x-headgate-lease-key"
	// MetadataAsk asks for an answer that says whether the domain is unknown. headgate ask sends it.
	MetadataAsk = "x-headgate-ask"
	// MetadataRequestID is the caller's name for the request, for the log.
	MetadataRequestID = "x-request-id"
)

// DefaultLeaseKey is where Envoy finds the token in a response's dynamic_metadata.
const DefaultLeaseKey = "lease"

// DefaultTimeout bounds a call to the backend whose caller brings no deadline.
const DefaultTimeout = 500 * time.Millisecond

// DelayHeader tells Envoy's fault filter how long to keep a request waiting,
// in milliseconds.
const DelayHeader = "x-envoy-fault-delay-request"
