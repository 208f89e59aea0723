package descriptors

import (
	"slices"
	"strings"

	"github.com/headgate-rls/headgate/limit"
	"github.com/headgate-rls/headgate/policies"
)

// A Rule is one node of the tree that applies to descriptors as deep as it is,
// or a resource that applies to the requests it matches.
type Rule struct {
	// ID is the rule's number among those of its sets: no other rule of them has it, and
	// it is below [Set.IDs]. Sets that [Build] makes number their rules in order.
	ID int
	// Domain is the rule's domain.
	Domain string
	// Path is the rule's place in the tree, as the reference service spells
	// it in statistics: "key_value.key_value". Of a resource it is its key.
	Path string
	// Resource is the resource's key, "METHOD:PATH[:HASH]"; empty if the rule
	// is one of descriptors.
	Resource string
	// By are the names of what requests to a resource are counted by, beside it, in alphabetical order.
	By []string
	// Networks and Except name those that the rule is for, and those that it is not for; empty if it says nothing.
	Networks, Except string
	Terms
	// Policy makes the keys of policies that take the place of the rule's only limit; nil if none
	// do. See [Rule.AppendPolicyKey].
	Policy *policies.Template
	// Choose: of a request's descriptors whose rules have the same text here, one is charged, the first that has room.
	// Those with a lower Prefer come first, and of equal ones the earlier in the request. Empty: the rule chooses nothing.
	Choose string
	Prefer int64
	// Keys are those of the entries that lead to a rule with Choose, as limit.AppendPart writes them; else empty.
	Keys string
	// Metric says which runtime values of the descriptor's entries go into
	// the metrics' rule label.
	Metric MetricDetail
	// shared[i] is what counters have instead of the value of entry i, because
	// all values that match count together; "" is the value itself. Nil if no
	// depth is shared.
	shared []string
	// others are the entries that stand for all values beyond MaxKeys. Nil if MaxKeys is 0.
	others []Entry
	// begins is what every group of the rule begins with: the domain and the first key, or, if that has a *, which is
	// anyKey, the domain.
	begins string
	anyKey bool
	// raw: the counters' group is the value of the last entry and nothing else.
	raw bool
	// fixed is the counters' group if all requests share it, as those of a
	// resource without By do.
	fixed string
	// class is the kind of path of a resource.
	class pathClass

	ids   []string // the parts of Path; nil if Path split at its dots gives the same, and metrics need none
	place Place
}

// Steps returns the descriptors that lead to the rule, the outermost first: "key" or "key_value". A resource is one.
func (r *Rule) Steps() []string {
	switch {
	case r.Resource != "":
		return []string{r.Path}
	case r.ids != nil:
		return slices.Clone(r.ids)
	}
	return strings.Split(r.Path, ".")
}

// Terms are what a rule does to the requests that it applies to.
type Terms struct {
	// Limits are all the limits that apply at once. None (and not Unlimited,
	// and no Concurrency) means that the rule exempts what it matches.
	Limits []RuleLimit
	// Concurrency limits requests in flight; nil if the rule does not.
	Concurrency *Concurrency
	// Unlimited: answered with OK and the largest remaining, never counted.
	Unlimited bool
	// Replaces are names of limits that do not apply to a request to which
	// this rule applies.
	Replaces []string
	// Shadow: decided and counted, but never refused.
	Shadow bool
	// Quota: a refusal here refuses the request only if no other descriptor
	// of the request is admitted under quota mode.
	Quota bool
	// OnBackendError is what to answer when the backend cannot.
	OnBackendError FailurePolicy
	// OnOverload is what to answer when more requests arrive than the backend
	// can be asked about, although it answers in time. It is not FailLocal.
	OnOverload FailurePolicy
	// Charge says how refusals elsewhere in the request affect this rule.
	Charge Charge
	// Overflow says what the limits take of a cost that has no room. If it is
	// OverflowDefault, each limit has its own, or the service's default where that
	// is Refuse. MaxDebt is that of OverflowDebt, 0 if the rule
	// does not say.
	Overflow Overflow
	MaxDebt  int64
	// MaxKeys is how many values have counters of their own, 0 if the rule does not bound it. See [Rule.OthersGroup].
	MaxKeys int64
	// Reserve is how requests reserve units of the limits with Reserved; nil if they do not.
	Reserve *Reserve
	// Metadata goes into the response's dynamic metadata.
	Metadata map[string]any
	// Response is added to refusals by this rule.
	Response *Response
	// RequestHeaders are added to requests that pass while a limit of the rule is used as far as its WarnAt.
	RequestHeaders []Header
}

// Raw reports whether the rule's counters are called by the value of the last entry
// alone (counter: value).
func (r *Rule) Raw() bool { return r.raw }

// Place returns where the rule was read.
func (r *Rule) Place() (file string, line int) { return r.place.File, r.place.Line }

// A RuleLimit is one limit of a rule.
type RuleLimit struct {
	// Name is the operator's name for the limit, possibly empty.
	Name string
	// Limit is the compiled limit.
	Limit *limit.Limit
	// KeyPart is the limit's half of the counters' key (limit.Key.Limit).
	KeyPart string
	// WarnAt is the percentage of the limit's units from which on it counts as nearly used up; 0: from none.
	WarnAt int64
	// Shadow: counted, but never refuses.
	Shadow bool
	// Reserved: requests reserve units of it, as Terms.Reserve says.
	Reserved bool
	// AnyMonth: the rule says month, and not whether that is 30 days, as the limit
	// has it, or one of the calendar.
	AnyMonth bool
}

// MetricDetail says how specific a rule's metrics are.
type MetricDetail struct {
	// Detailed: every entry's runtime value.
	Detailed bool
	// ValueAt[i]: the runtime value of entry i. Nil if none.
	ValueAt []bool
}
