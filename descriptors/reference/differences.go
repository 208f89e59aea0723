package reference

import (
	"fmt"
	"strings"

	"github.com/headgate-rls/headgate/descriptors"
)

// A Difference is a kind of rules that the two decide differently.
type Difference struct {
	// What names such rules; Reference and Headgate say what each of the two does.
	What, Reference, Headgate string
	// InPlace: `headgate ratelimit`, which runs in the place of the reference, decides as it does.
	InPlace bool

	// domain and rule return what of a domain, or of a rule among those of its level, is
	// decided differently, empty if nothing is. Either may be nil.
	domain func(d *descriptors.DomainSpec) string
	rule   func(r *descriptors.RuleSpec, among []*descriptors.RuleSpec) string
}

// Differences are all of them, in the order of documents.
var Differences = []Difference{
	{
		What:      "a domain with several rules",
		Reference: "charges a refused request to all of its descriptors",
		Headgate:  "charges it to none, unless `--charge each`, which `headgate ratelimit` sets",
		InPlace:   true,
		domain: func(d *descriptors.DomainSpec) string {
			if limiting(d.Rules) > 1 {
				return "a request that one of the domain's rules refuses"
			}
			return ""
		},
	},
	{
		What:      "a `*` in a key, or at the beginning of a value",
		Reference: "joins key and value by `_`, and so lets the rule apply to other keys too",
		Headgate:  "compares key with key and value with value",
		rule: func(r *descriptors.RuleSpec, _ []*descriptors.RuleSpec) string {
			switch key, _, wild := strings.Cut(r.Key, "*"); {
			case wild:
				return fmt.Sprintf("an entry whose key and value together begin with %q", key)
			case strings.HasPrefix(r.Value, "*"):
				return fmt.Sprintf("an entry whose key begins with %q", r.Key+"_")
			}
			return ""
		},
	},
	{
		What:      "rules whose keys begin alike, up to a `_`",
		Reference: "joins key and value by `_`, and so counts some values of the two together",
		Headgate:  "counts them apart",
		rule: func(r *descriptors.RuleSpec, among []*descriptors.RuleSpec) string {
			for _, other := range among {
				if len(r.Limits) > 0 && len(other.Limits) > 0 && sharesCounters(other, r) {
					return fmt.Sprintf("the counters of key %q and of key %q in %s:%d", r.Key, other.Key, other.Place.File,
						other.Place.Line)
				}
			}
			return ""
		},
	},
	{
		What:      "`quota_mode`",
		Reference: "keeps what it has charged to other descriptors when all quotas are spent",
		Headgate:  "refuses the request, and gives the other charges back",
		rule: func(r *descriptors.RuleSpec, _ []*descriptors.RuleSpec) string {
			if r.Quota && len(r.Limits) > 0 {
				return "a request whose quotas are all spent"
			}
			return ""
		},
	},
	{
		What:      "`shadow_mode`, and a request with a limit of its own",
		Reference: "refuses by the request's limit", Headgate: "refuses nothing",
		rule: func(r *descriptors.RuleSpec, _ []*descriptors.RuleSpec) string {
			if r.Shadow && len(r.Limits) > 0 {
				return "a request with a limit of its own"
			}
			return ""
		},
	},
	{
		What:      "`metadata` beside `detailed_metric` or `value_to_metric`",
		Reference: "loses the metadata", Headgate: "answers with it",
		rule: func(r *descriptors.RuleSpec, _ []*descriptors.RuleSpec) string {
			if r.Metadata != nil && (r.DetailedMetric || r.ValueToMetric) {
				return "the metadata of the rule"
			}
			return ""
		},
	},
}

// Find returns what of the rules the two decide differently, each as a warning with its
// place. inPlace: headgate runs as `headgate ratelimit`.
func Find(spec *descriptors.Spec, inPlace bool) []descriptors.Problem {
	var found descriptors.Problems
	for i := range spec.Domains {
		d := spec.Domains[i]
		for j := range Differences {
			if diff := &Differences[j]; diff.domain != nil && !(inPlace && diff.InPlace) {
				diff.add(&found, d.Place, d.Name, diff.domain(d))
			}
		}
		walk(&found, d.Rules, descriptors.TreePath("", d.Name, ""))
	}
	return found.Sorted()
}

// walk looks at the rules of one level, and at those below.
func walk(found *descriptors.Problems, rules []*descriptors.RuleSpec, above string) {
	for _, r := range rules {
		path := descriptors.TreePath(above, r.Key, r.Value)
		for i := range Differences {
			if d := &Differences[i]; d.rule != nil {
				d.add(found, r.Place, path, d.rule(r, rules))
			}
		}
		walk(found, r.Rules, path)
	}
}

// add adds a finding about what, unless that is empty.
func (d *Difference) add(found *descriptors.Problems, at descriptors.Place, path, what string) {
	if what == "" {
		return
	}
	plain := strings.NewReplacer("`", "")
	found.Add(descriptors.Problem{
		File: at.File, Line: at.Line, Col: at.Col, Path: path, Warning: true,
		Message: fmt.Sprintf("differs: %s: the reference %s; headgate %s", what, plain.Replace(d.Reference),
			plain.Replace(d.Headgate)),
	})
}

// limiting counts rules with limits.
func limiting(rules []*descriptors.RuleSpec) (n int) {
	for _, r := range rules {
		if len(r.Limits) > 0 {
			n++
		}
		n += limiting(r.Rules)
	}
	return n
}

// sharesCounters reports whether an entry of b and one of a can look alike when key and
// value are joined: b's key is a's, a "_" and more.
func sharesCounters(a, b *descriptors.RuleSpec) bool {
	rest, ok := strings.CutPrefix(b.Key, a.Key+"_")
	if !ok {
		return false
	}
	switch {
	case a.Value == "":
		return true
	case b.Value == "":
		return strings.HasPrefix(a.Value, rest+"_")
	}
	return a.Value == rest+"_"+b.Value
}
