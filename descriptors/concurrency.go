package descriptors

import (
	"time"

	"github.com/headgate-rls/headgate/limit"
)

// DefaultLeaseTTL is when a lease expires whose end nobody reports, where neither
// its rule nor Options say.
const DefaultLeaseTTL = 300 * time.Second

// A Concurrency limits how many requests are in flight under a rule.
type Concurrency struct {
	// Limit counts the requests. Its Max is the lowest threshold that refuses,
	// or as many as can be counted if no tier does.
	Limit *limit.Limit
	// KeyPart is the limit's half of the counters' key (limit.Key.Limit).
	KeyPart string
	// Tiers are what happens above which count, ascending by threshold. From
	// the first tier that refuses, all refuse.
	Tiers []Tier
	// LeaseTTL is how long a request counts whose end is never reported.
	LeaseTTL time.Duration
	// Hold is how long a refused request counts, so that requests can reach
	// higher tiers; not at all if zero.
	Hold time.Duration
	// ByHits: requests are counted without a name, one up at their start and
	// one down at their end, also those that were refused.
	ByHits bool
}

// A Tier is what happens to requests above a threshold.
type Tier struct {
	// Threshold: the tier applies to counts above it, the request included.
	Threshold int64
	// Status is the HTTP status of a refusal, 400 to 599. Zero lets pass.
	Status int
	// Headers and Content are those of a refusal. Headers are sorted by name.
	Headers []Header
	Content string
	// Delay is how long the request is kept waiting first, in whole
	// milliseconds.
	Delay time.Duration
	// Name is the operator's name for the tier, possibly empty.
	Name string
}
