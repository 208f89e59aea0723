package descriptors

import (
	"maps"
	"slices"

	"github.com/headgate-rls/headgate/limit"
)

// A Set is the compiled rules of every domain. It is immutable.
type Set struct {
	domains map[string]*domain
	rules   []*Rule
	hash    uint64
}

// Hash returns a number below 2^52 that stands for the sources that the set was
// loaded from: it is the same for the same contents, whatever files they are in.
func (s *Set) Hash() uint64 { return s.hash }

// An Entry is one key and value of a descriptor.
type Entry struct{ Key, Value string }

// A Match is what [Set.Match] finds for one descriptor.
type Match struct {
	// Domain says whether the set has rules for the domain at all.
	Domain bool
	// Rule is the rule that applies, nil if none does.
	Rule *Rule
	// Group is the counters' group (limit.Key.Group), set if Rule has limits
	// or a Concurrency.
	Group string
}

// A Rule is one node of the tree that applies to descriptors as deep as it is,
// or a resource that applies to the requests it matches.
type Rule struct {
	// ID numbers the rules of a set from 0, in file order; a file's resources
	// follow its descriptors.
	ID int
	// Domain is the rule's domain.
	Domain string
	// Path is the rule's place in the tree, as the reference service spells
	// it in statistics: "key_value.key_value". Of a resource it is its key.
	Path string
	// Resource is the resource's key, "METHOD:PATH[:HASH]"; empty if the rule
	// is one of descriptors.
	Resource string
	// Limits are all the limits that apply at once. None (and not Unlimited,
	// and no Concurrency) means that the rule exempts what it matches.
	Limits []RuleLimit
	// Concurrency limits requests in flight; nil if the rule does not.
	Concurrency *Concurrency
	// Unlimited: answered with OK and the largest remaining, never counted.
	Unlimited bool
	// UnlimitedName is the name of an unlimited rate_limit, for replaces.
	UnlimitedName string
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
	// Metadata goes into the response's dynamic metadata.
	Metadata map[string]any
	// Response is added to refusals by this rule.
	Response *Response
	// Metric says which runtime values of the descriptor's entries go into
	// the metrics' rule label.
	Metric MetricDetail
	// shared[i] is what counters have instead of the value of entry i, because
	// all values that match count together; "" is the value itself. Nil if no
	// depth is shared.
	shared []string
	// raw: the counters' group is the value of the last entry and nothing else.
	raw bool
	// fixed is the counters' group if all requests share it, as those of a
	// resource do.
	fixed string
	// matched is the resource as it is matched, nil if there is none.
	matched *resource

	ids  []string // the parts of Path
	file string
	line int
}

// Raw says whether the rule's counters are called by the value of the last entry
// alone (counter: value).
func (r *Rule) Raw() bool { return r.raw }

// Place returns where the rule was read.
func (r *Rule) Place() (file string, line int) { return r.file, r.line }

// A RuleLimit is one limit of a rule.
type RuleLimit struct {
	// Name is the operator's name for the limit, possibly empty.
	Name string
	// Limit is the compiled limit.
	Limit *limit.Limit
	// KeyPart is the limit's half of the counters' key (limit.Key.Limit).
	KeyPart string
	// Shadow: counted, but never refuses.
	Shadow bool
	// Share is local_share: how many units a replica takes at once, to spend
	// them without asking the backend; zero if it takes none ahead.
	Share int64
}

// A Response is what a rule adds to its refusals.
type Response struct {
	// Content is the body, at most 64 KiB.
	Content string
	// Headers are response headers, sorted by name.
	Headers []Header
}

// A Header is one response header.
type Header struct{ Name, Value string }

// A FailurePolicy says what to answer when the backend cannot.
type FailurePolicy uint8

// The failure policies. The zero policy is the service's default.
const (
	FailDefault FailurePolicy = iota
	FailAllow
	FailDeny
	FailError // fail the call, so that the proxy's own failure mode decides
	FailLocal // decide on this process's memory
)

// A Charge says when a rule's limits are charged.
type Charge uint8

// The ways to charge. The zero value is the service's default.
const (
	ChargeDefault Charge = iota
	// ChargeAllOrNothing: only if every descriptor of the request is admitted.
	ChargeAllOrNothing
	// ChargeEach: each limit that has room, whatever the others say.
	ChargeEach
)

// MetricDetail says how specific a rule's metrics are.
type MetricDetail struct {
	// Detailed: every entry's runtime value.
	Detailed bool
	// ValueAt[i]: the runtime value of entry i. Nil if none.
	ValueAt []bool
}

// Rules returns all rules of the set by their ID.
func (s *Set) Rules() []*Rule { return s.rules }

// Domains returns the names of the set's domains in alphabetical order.
func (s *Set) Domains() []string { return slices.Sorted(maps.Keys(s.domains)) }

// A domain has the root of one domain's tree, and its resources.
type domain struct {
	root      *level         // nil if the domain has no rules
	resources *resourceIndex // nil if it has no resources
}

// A level has the rules below one node, by what they match.
type level struct {
	exact map[Entry]*node  // key and value as they are
	wild  *wildcards       // a * in key or value; nil if there are none
	bare  map[string]*node // any value of the key
}

// A node is one rule's place in the tree.
type node struct {
	rule *Rule  // nil if nothing applies to descriptors that end here
	next *level // nil if there are no rules below
}
