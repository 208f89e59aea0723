package descriptors

// A Spec is rules as a source of rules hands them to [Build].
type Spec struct {
	// Domains are read in order. Several may have one name: they are parts of
	// one domain.
	Domains []*DomainSpec
	// Hash is what [Set.Hash] returns. It is below 2^52.
	Hash uint64
}

// A DomainSpec is what a source says of one domain.
type DomainSpec struct {
	Name  string
	Place Place
	// Matrix says what becomes of matrix parameters in paths; nil if nothing is
	// said. All parts of a domain that say it must say the same.
	Matrix *MatrixSpec
	// Rules match descriptors, and Resources match requests.
	Rules     []*RuleSpec
	Resources []*ResourceSpec
	// Broken: the source has reported that the domain cannot be used. Build
	// reports what else is wrong with its rules.
	Broken bool
}

// A MatrixSpec says what becomes of matrix parameters in the paths of requests.
type MatrixSpec struct {
	Ignore bool // paths are compared without them
	Place  Place
}

// A Body is what a rule says to the requests it applies to.
type Body struct {
	Terms
	// DetailedMetric: metrics have every entry's runtime value.
	DetailedMetric bool
	// References are the names of the rule's limits, and whom they replace.
	References []Reference
	Place      Place
	// Broken: the source has reported that it is not known what the rule
	// matches. Build reports what else is wrong with it.
	Broken bool
}

// A RuleSpec is one node in the tree of rules that match descriptors.
type RuleSpec struct {
	Body
	Key   string // not empty
	Value string // empty: any value of the key
	// Applies: the Body applies to descriptors that end here. If not, the node
	// only leads to the rules below.
	Applies bool
	// ShareThreshold: all values that a * matches count together.
	ShareThreshold bool
	// ValueToMetric: metrics have the runtime value of this entry.
	ValueToMetric bool
	// CountByValue: counters are called by the value of the last entry alone.
	CountByValue bool
	// Rules are the rules below, in order.
	Rules []*RuleSpec
}

// A ResourceSpec is one rule that matches requests.
type ResourceSpec struct {
	Body
	// Label names the resource in problems, before its key is known.
	Label string
	// Method is an HTTP method in capitals, or empty for any.
	Method string
	// Path says which paths or operations match.
	Path Path
	// Matcher is what else requests must be like.
	Matcher Matcher
	// HashLength is how many digits of a hash the key has, at most 64; 0 is 8.
	HashLength int
	// Name names the counters: they stay when Method, Path or Matcher change.
	// If it is empty the key does.
	Name      string
	NamePlace Place
}

// A Reference says that a limit called From, if it has a name, replaces those
// called To. With an empty To it only says that From exists.
type Reference struct {
	From, To string
	Place    Place
}
