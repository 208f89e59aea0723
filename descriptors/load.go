package descriptors

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/headgate-rls/headgate/limit"
)

// Bounds of what Load accepts. They are far above sensible rules and keep a
// broken or hostile file from taking the process down.
const (
	maxSourceBytes   = 16 << 20
	maxDepth         = 32
	maxRules         = 1_000_000
	maxDomain        = 256
	maxKey           = 256
	maxValue         = 4096
	maxName          = 128
	maxContent       = 64 << 10
	maxMetadataNodes = 10_000
	maxMetadataDepth = 32
	maxProblems      = 10_000
	// maxExpansion is how many YAML nodes more than it has bytes a file may
	// have once its aliases are followed.
	maxExpansion = 1_000_000
)

// A Source is one file of rules.
type Source struct {
	Name string // shown in problems
	Data []byte
}

// Options change how rules are read.
type Options struct {
	// MergeDomains lets several sources hold rules of one domain.
	MergeDomains bool
	// DefaultDomain is the domain of sources with a plugin (rest or soap) that
	// name none: "default" if empty. Such sources always share it.
	DefaultDomain string
	// DefaultLeaseTTL is the lease_ttl of rules that have none: 300 s if zero.
	DefaultLeaseTTL time.Duration
	// HashLength is how many digits of a hash resource keys have, in sources
	// that do not say: 8 if zero, at most 64.
	HashLength int
	// Library accepts criteria on the request's body. They are part of
	// resource keys; [Set.Match], which sees descriptors only, never finds a
	// resource that has them.
	Library bool
}

// A Problem is something wrong with the rules, and where.
type Problem struct {
	File string `json:"file"`
	Line int    `json:"line,omitempty"`
	Col  int    `json:"col,omitempty"`
	// Path is the place in the tree of rules: "shop/tenant_acme*/path".
	Path    string `json:"path,omitempty"`
	Message string `json:"message"`
	// Warning: the rules work, but perhaps not as intended.
	Warning bool `json:"warning,omitempty"`
}

// String renders p as "file:line:col: message (at path)".
func (p Problem) String() string {
	var b strings.Builder
	b.WriteString(p.File)
	for _, n := range []int{p.Line, p.Col} {
		if n > 0 {
			b.WriteString(":" + strconv.Itoa(n))
		}
	}
	b.WriteString(": ")
	if p.Warning {
		b.WriteString("warning: ")
	}
	b.WriteString(p.Message)
	if p.Path != "" {
		b.WriteString(" (at " + p.Path + ")")
	}
	return b.String()
}

// Load compiles the rules of all sources. It returns every problem of the
// whole set, ordered by place; if one of them is more than a warning, the Set
// is nil.
func Load(sources []Source, opt Options) (*Set, []Problem) {
	set, problems, _ := load(sources, opt)
	return set, problems
}

// load is Load, and tells the domain of each source: "" if it cannot be read.
func load(sources []Source, opt Options) (*Set, []Problem, []string) {
	l := &loader{
		opt:     opt,
		domains: map[string]*twig{},
		limits:  map[limit.Spec]*limit.Limit{},
	}
	named := make([]string, len(sources))
	for i := range sources {
		l.named = ""
		l.source(&sources[i])
		named[i] = l.named
	}
	l.checkReplaces()
	set := l.compile()
	slices.SortStableFunc(l.problems, func(a, b Problem) int {
		return cmp.Or(
			cmp.Compare(a.File, b.File),
			cmp.Compare(a.Line, b.Line),
			cmp.Compare(a.Col, b.Col),
			cmp.Compare(a.Message, b.Message),
		)
	})
	if l.failed {
		return nil, l.problems, named
	}
	set.hash = hashOf(sources)
	return set, l.problems, named
}

// hashOf returns a number of 52 bits, which a metric can hold, that stands for
// what the sources say, whatever they are called and in whatever order.
func hashOf(sources []Source) uint64 {
	sums := make([][sha256.Size]byte, len(sources))
	for i := range sources {
		sums[i] = sha256.Sum256(sources[i].Data)
	}
	slices.SortFunc(sums, func(a, b [sha256.Size]byte) int { return bytes.Compare(a[:], b[:]) })
	h := sha256.New()
	for i := range sums {
		h.Write(sums[i][:])
	}
	return binary.BigEndian.Uint64(h.Sum(nil)) >> 12
}

// A loader reads sources one after the other and collects their rules.
type loader struct {
	opt      Options
	problems []Problem
	failed   bool // some problem is an error

	file   string // the source being read
	named  string // its domain, once that is known
	style  fileStyle
	budget int  // YAML nodes that it may still have
	stop   bool // a bound was hit, read no more

	domains map[string]*twig
	order   []*twig // the domains in the order they appeared
	rules   []*Rule
	nodes   int // of the tree, rules or not
	refs    []reference
	limits  map[limit.Spec]*limit.Limit // equal limits are one
}

// A twig is a node of the tree of rules while it is being read.
type twig struct {
	key, value string // of a domain: its name and nothing
	parent     *twig
	depth      int
	file       string
	line, col  int

	implied   bool                 // a domain that no source names
	matrix    *matrixMode          // of a domain, nil if nothing is said
	resources []*resource          // of a domain, in file order
	keys      map[string]*resource // of resources, for duplicates
	names     map[string]*resource // the same

	rule     *Rule  // nil if nothing applies at this depth
	shared   string // what counters have instead of the value, if anything
	metric   bool   // value_to_metric
	children []*twig
	ids      map[string]*twig // children by composite id, for duplicates
}

// id is the reference's name of a node, which it keeps unique per level.
func (t *twig) id() string {
	if t.value == "" {
		return t.key
	}
	return t.key + "_" + t.value
}

// path is the place in the tree, for problems.
func (t *twig) path() string {
	if t == nil {
		return ""
	}
	id := t.id()
	if t.key == "" {
		id = "?" + id
	}
	if t.parent == nil {
		return id
	}
	return t.parent.path() + "/" + id
}

func (l *loader) add(p Problem) {
	if !p.Warning {
		l.failed = true
	}
	if len(l.problems) < maxProblems {
		l.problems = append(l.problems, p)
		return
	}
	// Too many to help anyone; the last place says so.
	l.problems[maxProblems-1] = Problem{
		File: p.File, Message: fmt.Sprintf("more than %d problems; the rest is not shown", maxProblems), Warning: !l.failed,
	}
}

func (l *loader) problem(warning bool, n *yaml.Node, t *twig, format string, args ...any) {
	p := Problem{File: l.file, Path: t.path(), Message: fmt.Sprintf(format, args...), Warning: warning}
	if n != nil {
		p.Line, p.Col = n.Line, n.Column
	}
	l.add(p)
}

func (l *loader) errorf(n *yaml.Node, t *twig, format string, args ...any) {
	l.problem(false, n, t, format, args...)
}

func (l *loader) warnf(n *yaml.Node, t *twig, format string, args ...any) {
	l.problem(true, n, t, format, args...)
}

// clean says whether f reports no error.
func (l *loader) clean(f func()) bool {
	before := l.failed
	l.failed = false
	f()
	ok := !l.failed
	l.failed = l.failed || before
	return ok
}

// source reads one source's domain and rules.
func (l *loader) source(s *Source) {
	l.file, l.stop = s.Name, false
	if len(s.Data) > maxSourceBytes {
		l.errorf(nil, nil, "the file has %d bytes; at most %d are read", len(s.Data), maxSourceBytes)
		return
	}
	root, ok := l.parse(s.Data)
	if !ok {
		return
	}
	l.budget = len(s.Data) + maxExpansion
	f, ok := l.fields(root, levelFile, nil)
	if !ok {
		return
	}
	l.readStyle(f)
	d := l.domain(root, f)
	if d == nil {
		d = &twig{} // still report what is wrong with its rules
	}
	l.matrixMode(f, d)
	list, resources := f.get("descriptors"), f.get("resources")
	if (list == nil || isNull(list)) && (resources == nil || isNull(resources)) {
		l.warnf(root, d, "the domain has no descriptors and no resources, so nothing in it is limited")
		return
	}
	if list != nil && !isNull(list) {
		l.list(list, d, "descriptors", func(n *yaml.Node) { l.rule(n, d) })
	}
	if resources != nil && !isNull(resources) {
		l.list(resources, d, "resources", func(n *yaml.Node) { l.resource(n, d) })
	}
}

var yamlError = regexp.MustCompile(`^yaml: (?:line (\d+): )?`)

// parse returns the top mapping of the only document in data.
func (l *loader) parse(data []byte) (*yaml.Node, bool) {
	var doc, more yaml.Node
	dec := yaml.NewDecoder(bytes.NewReader(data))
	err := dec.Decode(&doc)
	if errors.Is(err, io.EOF) || err == nil && isNull(&doc) {
		l.errorf(nil, nil, "the file is empty; it must start with a domain")
		return nil, false
	}
	if err == nil {
		err = dec.Decode(&more)
		if err == nil && !isNull(&more) {
			l.errorf(&more, nil, "a second YAML document; put it into a file of its own")
			return nil, false
		}
	}
	if err != nil && !errors.Is(err, io.EOF) {
		p := Problem{File: l.file}
		m := yamlError.FindStringSubmatch(err.Error())
		if m != nil {
			p.Line, _ = strconv.Atoi(m[1])
			p.Message = "not valid YAML: " + err.Error()[len(m[0]):]
		} else {
			p.Message = "not valid YAML: " + err.Error()
		}
		l.add(p)
		return nil, false
	}
	return doc.Content[0], true
}

// domain returns the root of the file's domain, nil if there is none.
func (l *loader) domain(root *yaml.Node, f fields) *twig {
	n := f.get("domain")
	if n == nil && l.style.plugin != "" {
		return l.impliedDomain(root)
	}
	if n == nil {
		l.errorf(root, nil, "the file has no domain; start it with `domain: NAME`")
		return nil
	}
	name, ok := l.text(n, nil, "domain", maxDomain)
	if !ok {
		return nil
	}
	if name == "" {
		l.errorf(n, nil, "the domain is empty")
		return nil
	}
	l.named = name
	if d := l.domains[name]; d != nil {
		if l.opt.MergeDomains {
			return d
		}
		l.errorf(n, d, "domain %q is already in %s; put its rules into one file, or allow merging domains", name, d.file)
		return nil
	}
	d := &twig{key: name, file: l.file, line: n.Line, col: n.Column}
	l.domains[name] = d
	l.order = append(l.order, d)
	return d
}

// impliedDomain returns the root of the domain that files of a plugin share if
// they name none.
func (l *loader) impliedDomain(root *yaml.Node) *twig {
	name := l.opt.DefaultDomain
	if name == "" {
		name = defaultDomain
	}
	l.named = name
	if d := l.domains[name]; d != nil {
		if d.implied || l.opt.MergeDomains {
			return d
		}
		l.errorf(root, d, "the file names no domain, and the default %q is already in %s; name another, or allow merging domains", name, d.file)
		return nil
	}
	d := &twig{key: name, implied: true, file: l.file, line: root.Line, col: root.Column}
	l.domains[name] = d
	l.order = append(l.order, d)
	return d
}
