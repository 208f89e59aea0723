package rulefile

import (
	"fmt"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/headgate-rls/headgate/descriptors"
)

// Bounds of reading. What rules may be, descriptors.Build checks.
const (
	// maxAliases bounds aliases of aliases, and merges of merges.
	maxAliases = 32
	// maxExpansion is how many YAML nodes more than it has bytes a file may
	// have once its aliases are followed.
	maxExpansion = 1_000_000
	// maxExempt bounds the warnings of rules without a limit.
	maxExempt = 1000
)

// Options change how rules are read.
type Options struct {
	// MergeDomains lets several sources hold rules of one domain.
	MergeDomains bool
	// DefaultLeaseTTL is the lease_ttl of rules that have none: 300 s if zero.
	DefaultLeaseTTL time.Duration
}

// A loader reads sources one after the other and collects their rules.
type loader struct {
	descriptors.Problems
	opt Options

	file   string // the source being read
	owner  *Owner // of that
	begins string // what it must begin with
	named  string // its domain, once that is known
	style  fileStyle
	budget int  // YAML nodes that it may still have
	stop   bool // a bound was hit, read no more

	domains   map[string]*firstFile
	spec      descriptors.Spec          // with a domain of each source that has one
	names     []string                  // the domain of each source, "" if it cannot be read
	exempt    []descriptors.Problem     // what limits nothing
	manifests []descriptors.Problem     // files of Kubernetes that have no rules
	nodes     int                       // of the tree, rules or not
	zones     map[string]*time.Location // that rules name
}

// firstFile is where a domain was first met.
type firstFile struct {
	name    string
	implied bool // the file does not name the domain
}

// A twig is a node of the tree of rules while it is being read.
type twig struct {
	key, value string // of a domain: its name and nothing
	parent     *twig
	depth      int
}

// path is the place in the tree, for problems.
func (t *twig) path() string {
	if t == nil {
		return ""
	}
	return descriptors.TreePath(t.parent.path(), t.key, t.value)
}

// place is where n is.
func (l *loader) place(n *yaml.Node) descriptors.Place {
	return descriptors.Place{File: l.file, Line: n.Line, Col: n.Column}
}

// written returns where the fields of a mapping are.
func written(f fields) descriptors.Fields {
	out := make(descriptors.Fields, len(f))
	for i := range f {
		out[i] = descriptors.Field{Name: f[i].name, Line: f[i].value.Line, Col: f[i].value.Column}
	}
	return out
}

func (l *loader) problem(n *yaml.Node, t *twig, format string, args ...any) descriptors.Problem {
	p := descriptors.Problem{File: l.file, Path: t.path(), Message: fmt.Sprintf(format, args...)}
	if n != nil {
		p.Line, p.Col = n.Line, n.Column
	}
	return p
}

func (l *loader) errorf(n *yaml.Node, t *twig, format string, args ...any) {
	l.Add(l.problem(n, t, format, args...))
}

func (l *loader) warnf(n *yaml.Node, t *twig, format string, args ...any) {
	p := l.problem(n, t, format, args...)
	p.Warning = true
	l.Add(p)
}

// A fileStyle is what a file's top level says of its resources.
type fileStyle struct {
	generated  bool   // by a program, which writes what is left out as null, empty or false
	plugin     string // "rest" or "soap"; empty in files of our own
	hashLength int
}
