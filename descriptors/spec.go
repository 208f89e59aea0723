package descriptors

import (
	"time"

	"github.com/headgate-rls/headgate/limit"
)

// Bounds of rules. They are far above sensible rules and keep a broken or
// hostile source from taking the process down. Texts count in bytes.
const (
	MaxRules = 1_000_000 // of all domains, with those that only lead to others
	MaxDepth = 256       // of rules below rules
	// MaxMetadataDepth is how deep lists and mappings of metadata nest.
	MaxMetadataDepth = 32
	// MaxMetadataValues bounds the metadata of one rule.
	MaxMetadataValues = 10_000

	maxDomain   = 1024
	maxKey      = 1024
	maxValue    = 4096
	maxName     = 128
	maxContent  = 64 << 10
	maxLimits   = 1024
	maxReplaces = 1024
	maxTiers    = 32
	maxDelay    = 10 * time.Minute
	minStatus   = 400
	maxStatus   = 599
)

// A Spec is rules as a source of rules hands them to [Build].
type Spec struct {
	// Domains are read in order. Several may have one name: they are parts of
	// one domain.
	Domains []*DomainSpec
	// Hash is what [Set.Hash] returns. It is below 2^52.
	Hash uint64
}

// A DomainSpec has the rules of one domain, or of a part of it.
type DomainSpec struct {
	Name  string
	Place Place // of the name
	// CutParams: paths of requests are compared without their matrix parameters. AsSent: only the path that a
	// resource's rule names counts for it, and no other spelling that a server might take for it. AnyCase: it counts in
	// upper and lower case. They are nil if the source does not say. All parts of a domain that say it must say the same.
	CutParams, AsSent, AnyCase *Switch
	// Rules match descriptors, and Resources match requests.
	Rules     []*RuleSpec
	Resources []*ResourceSpec
	// Absent, if there are any, are domains without rules: the first of Rules matches every descriptor of theirs. Name
	// is then no domain of the Set, and one DomainSpec at most has them.
	Absent DomainPatterns
	// Broken: the source has reported that the domain cannot be used. Build
	// reports what else is wrong with its rules.
	Broken bool
}

// A Switch is what a source says of all requests of a domain.
type Switch struct {
	Name  string // of the field that says it, for problems
	On    bool
	Place Place
}

// A Body is what a rule does to the requests that it applies to.
type Body struct {
	Limits      []LimitSpec
	Concurrency *ConcurrencySpec
	// Shadow, Quota, OnBackendError, OnOverload, Charge, Overflow and MaxDebt are as
	// in [Terms]. Overflow and MaxDebt are for all limits, whatever their figures say,
	// unless Overflow is OverflowDefault.
	Shadow, Quota              bool
	OnBackendError, OnOverload FailurePolicy
	Charge                     Charge
	Overflow                   Overflow
	MaxDebt                    int64
	// MaxKeys is as in [Terms]. Of resources only those with By have it: others have one counter.
	MaxKeys int64
	// Except are the networks whose addresses the rule is not for: of values of its key, and of a resource of
	// remote_address.
	Except []Network
	// Reserve is for all limits; nil if the source does not say.
	Reserve *ReserveSpec
	// Metadata has nil, bool, int64, finite float64, string, []any and
	// map[string]any.
	Metadata map[string]any
	// Response is added to refusals; nil adds nothing. The order of its headers
	// does not matter.
	Response *Response
	// RequestHeaders are as in [Terms].
	RequestHeaders []Header
	// DetailedMetric: metrics have every entry's runtime value.
	DetailedMetric bool

	Place  Place
	Fields Fields
	// Broken: the source has reported that it is not known what the rule
	// matches. Build reports what else is wrong with it.
	Broken bool
}

// A LimitSpec is one limit of a rule.
type LimitSpec struct {
	// Name is the operator's name for the limit, possibly empty.
	Name string
	// Unlimited: the rule does not limit what it matches. Such a limit is the
	// only one of its rule and has no figures.
	Unlimited bool
	// Figures are the limit's. Its algorithm is not limit.Concurrency.
	Figures limit.Spec
	// AnyMonth: the source says month, and not whether that is 30 days or one of the
	// calendar. Figures have 30 days.
	AnyMonth bool
	// Share is how many units a replica takes ahead, [limit.AutoShare] as many as the traffic
	// needs, [limit.NoShare] none; 0 is the service's default.
	Share int64
	// Reserve is for this limit; nil if the source does not say.
	Reserve *ReserveSpec
	// WarnAt is as in [RuleLimit].
	WarnAt int64
	// Shadow: counted, but never refuses.
	Shadow bool
	// Alone: the counters are called by the algorithm alone, as those of a
	// rate_limit are. Only the first limit of a rule may be so.
	Alone bool
	// Replaces are the limits that do not apply where this one does.
	Replaces []Replaced
	// Broken: the source has reported that the figures cannot be used.
	Broken bool

	Place  Place
	Fields Fields
}

// Replaced is the name of a limit that another one replaces.
type Replaced struct {
	Name  string
	Place Place
}

// A ConcurrencySpec limits how many requests are in flight.
type ConcurrencySpec struct {
	// Tiers are in any order, as are the headers of each.
	Tiers []TierSpec
	// LeaseTTL is how long a request counts whose end nobody reports: there is
	// [DefaultLeaseTTL] for sources that do not say.
	LeaseTTL time.Duration
	// Hold is how long a refused request counts; nil if the source does not say.
	Hold *time.Duration
	// ByHits is as in [Concurrency].
	ByHits bool
	// Broken: the source has reported that it is not known how long requests
	// count.
	Broken bool

	Place  Place
	Fields Fields
}

// A TierSpec is one tier.
type TierSpec struct {
	Tier
	// Broken: the source has reported that the tier cannot be used.
	Broken bool

	Place  Place
	Fields Fields
}

// A RuleSpec is one node in the tree of rules that match descriptors. It applies
// to descriptors that end here if it limits something, or if it has no rules
// below: then it exempts them. Else it only leads to the rules below.
type RuleSpec struct {
	Body
	Key   string // not empty
	Value string // empty: any value of the key
	// Networks, in place of Value: values that are addresses in one of them.
	Networks []Network
	// ShareThreshold: all values that a * matches, or all addresses of Networks, count together.
	ShareThreshold bool
	// ValueToMetric: metrics have the runtime value of this entry.
	ValueToMetric bool
	// CountByValue: counters are called by the value of the last entry alone.
	CountByValue bool
	// Policy makes the keys of policies that take the place of the rule's limit, as
	// [policies.ParseTemplate] reads it; empty: none do.
	Policy string
	// Choose and Prefer are as in [Rule].
	Choose string
	Prefer int64
	// Rules are the rules below, in order.
	Rules []*RuleSpec
}

// A ResourceSpec is one rule that matches requests.
type ResourceSpec struct {
	Body
	// Method is an HTTP method, in upper or lower case; empty or "*" is any.
	Method string
	// Path says which paths match: "/a" and "/a/{id}" are for one path, "/a/*"
	// for all that start alike, "~" and a regular expression (RE2) for what
	// matches, "*" or nothing for all.
	Path string
	// SOAP: the resource is for SOAP requests, which have no Path and no Method
	// but POST. Operation is the last part of their SOAPAction; empty or "*" is
	// any.
	SOAP      bool
	Operation string
	// Matcher is what else requests must be like.
	Matcher Matcher
	// HashLength is how many digits of a hash the key has, at most 64; 0 is 8.
	HashLength int
	// Name names the counters: they stay when Method, Path or Matcher change.
	// If it is empty the key does.
	Name string
	// By is what requests are counted by, beside the resource: each combination of values has its own counter.
	By []Value
}

// A Value is something that requests are counted by: remote_address, masked_remote_address, jwt.CLAIM, header.NAME,
// query.NAME or pathParams.NAME.
type Value struct {
	Name  string
	Place Place
}

// Fields say where a source has the fields of a rule, limit or tier written. They
// may be nil: then problems have the place of the whole.
type Fields []Field

// A Field is the place of one field. Its name is the one that rules in YAML have
// for it; that of a response header is "header " and the header's name.
type Field struct {
	Name      string
	Line, Col int
}

// place returns the place of a field of what is at whole.
func (fs Fields) place(name string, whole Place) Place {
	for i := range fs {
		if fs[i].Name == name {
			whole.Line, whole.Col = fs[i].Line, fs[i].Col
			break
		}
	}
	return whole
}
