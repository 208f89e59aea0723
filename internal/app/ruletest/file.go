package ruletest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/descriptors/rulefile"
	"github.com/headgate-rls/headgate/internal/app/client"
	"github.com/headgate-rls/headgate/internal/kit/bounded"
	"github.com/headgate-rls/headgate/internal/kit/units"
	"github.com/headgate-rls/headgate/internal/kit/yamlfile"
	"github.com/headgate-rls/headgate/policies"
	"github.com/headgate-rls/headgate/policies/table"
	"github.com/headgate-rls/headgate/ratelimit"
)

// A file is a file of tests.
type file struct {
	Rules    words    `yaml:"rules"` // relative to the file
	Domain   string   `yaml:"domain"`
	Start    instant  `yaml:"start"` // the time of at: 0s
	Policies []policy `yaml:"policies"`
	Tests    []*test  `yaml:"tests"`
}

// A test begins with unused counters.
type test struct {
	Name     string   `yaml:"name"`
	Domain   string   `yaml:"domain"`
	Start    instant  `yaml:"start"`
	Policies []policy `yaml:"policies"`
	Steps    []*step  `yaml:"steps"`

	line int
}

// A step is requests that are alike.
type step struct {
	At       duration  `yaml:"at"`
	Ask      words     `yaml:"ask"` // a descriptor each
	Domain   string    `yaml:"domain"`
	Times    *int      `yaml:"times"`
	Every    duration  `yaml:"every"` // between them
	Hits     *int64    `yaml:"hits"`
	Hold     *duration `yaml:"hold"`
	Estimate *int64    `yaml:"estimate"` // of what a request may cost, for rules with reserve
	Cost     *int64    `yaml:"cost"`     // that it has at its end, for these rules
	Policies []policy  `yaml:"policies"` // in force from now on

	Want      string    `yaml:"want"`    // of each
	Refused   *int      `yaml:"refused"` // so many of them, in the place of want
	Rule      string    `yaml:"rule"`
	Retry     *duration `yaml:"retry"`
	Remaining *int64    `yaml:"remaining"`
	Status    int       `yaml:"status"`
	Delay     *duration `yaml:"delay"`
	// Chosen is, by the name of each choice, the last value of the descriptor that is charged.
	Chosen map[string]string `yaml:"chosen"`

	line    int
	request ratelimit.Request
}

// want are the words for answers.
const (
	wantOK   = "OK"
	wantOver = "OVER_LIMIT"
)

// maxTimes bounds the requests of a step.
const maxTimes = 10_000_000

// defaultStart is a Thursday, the first instant of a minute, an hour, a day and a year.
var defaultStart = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// read reads a file of tests.
func read(name string) (*file, error) {
	text, err := bounded.File(name, rulefile.MaxSourceBytes)
	if err != nil {
		return nil, err
	}
	document, second, bad := yamlfile.Decode(text)
	switch {
	case bad != nil:
		return nil, fmt.Errorf("%s:%d: %s", name, bad.Line, bad.Message)
	case document == nil:
		return nil, fmt.Errorf("%s: the file is empty; it needs rules and tests", name)
	case second != nil:
		return nil, fmt.Errorf("%s:%d: a second document begins here; a file of tests has one", name, second.Line)
	}
	if items(document.Content[0], "descriptors") != nil || items(document.Content[0], "resources") != nil {
		return nil, fmt.Errorf("%s: this is a file of rules; headgate test wants a file of tests, whose rules: names it",
			name)
	}
	f := new(file)
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	if err := d.Decode(f); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: %s", name, plain(err))
	}
	err = f.number(document)
	if err == nil {
		err = f.check()
	}
	if err != nil {
		return nil, fmt.Errorf("%s:%w", name, err)
	}
	for i, path := range f.Rules {
		if !filepath.IsAbs(path) {
			f.Rules[i] = filepath.Join(filepath.Dir(name), path)
		}
	}
	return f, nil
}

var goType = regexp.MustCompile(` (in|into) (type )?\*?(ruletest|int|\[\]ruletest)\S*`)

// plain returns an error of the YAML package without types of Go.
func plain(err error) string {
	text := strings.TrimPrefix(err.Error(), "yaml: ")
	text = strings.TrimPrefix(text, "unmarshal errors:\n  ")
	return strings.ReplaceAll(goType.ReplaceAllString(text, ""), "\n  ", "; ")
}

// number notes the lines of tests and steps. Its error begins with one.
func (f *file) number(document *yaml.Node) error {
	for i, t := range items(document.Content[0], "tests") {
		if f.Tests[i] == nil {
			return fmt.Errorf("%d: a test is empty", t.Line)
		}
		f.Tests[i].line = t.Line
		for j, s := range items(t, "steps") {
			if f.Tests[i].Steps[j] == nil {
				return fmt.Errorf("%d: a step of the test %q is empty", s.Line, f.Tests[i].Name)
			}
			f.Tests[i].Steps[j].line = s.Line
		}
	}
	return nil
}

// items returns the list under a key of a mapping.
func items(n *yaml.Node, key string) []*yaml.Node {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			if list := n.Content[i+1]; list.Kind == yaml.AliasNode {
				return list.Alias.Content
			}
			return n.Content[i+1].Content
		}
	}
	return nil
}

// check completes the tests. Its error begins with a line.
func (f *file) check() error {
	switch {
	case len(f.Rules) == 0:
		return errors.New("1: rules is missing: the files of rules to test, as in rules: [shop.yaml]")
	case len(f.Tests) == 0:
		return errors.New("1: tests is missing: there is nothing to test")
	}
	for _, t := range f.Tests {
		switch {
		case t == nil:
			return errors.New("1: a test is empty")
		case len(t.Steps) == 0:
			return fmt.Errorf("%d: the test %q has no steps", t.line, t.Name)
		}
		at := duration(0)
		for _, s := range t.Steps {
			if s == nil {
				return fmt.Errorf("%d: a step of the test %q is empty", t.line, t.Name)
			}
			if s.At < at {
				return fmt.Errorf("%d: at: %v is before the step above, which ends at %v: time does not go back",
					s.line, time.Duration(s.At), time.Duration(at))
			}
			if err := s.check(); err != nil {
				return fmt.Errorf("%d: %w", s.line, err)
			}
			at = s.At + duration(s.times()-1)*s.Every
		}
	}
	return nil
}

func (s *step) check() error {
	if len(s.Ask) == 0 {
		if len(s.Policies) > 0 && s.Want == "" && s.Refused == nil {
			return nil
		}
		return errors.New("ask is missing: a descriptor such as tenant=acme,path=/pay, or a list of them")
	}
	switch {
	case s.times() < 1 || s.times() > maxTimes:
		return fmt.Errorf("times: %d is outside 1 to %d", s.times(), maxTimes)
	case s.Want == "" && s.Refused == nil:
		return fmt.Errorf("want is missing: %s or %s, or refused with how many of the requests are", wantOK, wantOver)
	case s.Want != "" && s.Refused != nil:
		return errors.New("want and refused exclude each other")
	case s.Want != "" && s.Want != wantOK && s.Want != wantOver:
		return fmt.Errorf("want: %q must be %s or %s", s.Want, wantOK, wantOver)
	case s.Refused != nil && (*s.Refused < 0 || *s.Refused > s.times()):
		return fmt.Errorf("refused: %d is outside 0 to %d, the times", *s.Refused, s.times())
	case s.Want == wantOK && (s.Retry != nil || s.Status != 0):
		return errors.New("retry and status are of refusals: they need want: " + wantOver)
	case s.Want == wantOver && s.Chosen != nil:
		return errors.New("chosen is of requests that pass: it needs want: " + wantOK)
	case s.Estimate != nil && *s.Estimate < 1 || s.Cost != nil && *s.Cost < 0:
		return errors.New("estimate must be at least 1, and cost at least 0")
	case s.Hits != nil && (s.Estimate != nil || s.Cost != nil):
		return errors.New("hits exclude estimate and cost: a request with hits says itself what it costs")
	case s.Every < 0 || s.Hold != nil && *s.Hold < 0:
		return errors.New("every and hold must not be negative")
	}
	s.request.InProcess, s.request.Estimate = true, &ratelimit.Estimate{AsSent: true}
	if s.Estimate != nil {
		s.request.Estimate.Units = uint64(*s.Estimate)
	}
	for _, text := range s.Ask {
		parsed, err := client.ParseDescriptor(text)
		if err != nil {
			return fmt.Errorf("ask: %w", err)
		}
		var d ratelimit.Descriptor
		for _, e := range parsed.Entries {
			d.Entries = append(d.Entries, descriptors.Entry{Key: e.Key, Value: e.Value})
		}
		if s.Hits != nil {
			d.HasHits, d.Refund, d.Hits = true, *s.Hits < 0, uint64(max(*s.Hits, -*s.Hits))
		}
		s.request.Descriptors = append(s.request.Descriptors, d)
	}
	return nil
}

func (s *step) times() int {
	if s.Times == nil {
		return 1
	}
	return *s.Times
}

// String describes what a step asks.
func (s *step) String() string {
	return fmt.Sprintf("at %v ask %s", units.Format(time.Duration(s.At)), strings.Join(s.Ask, " "))
}

// words is a text, or a list of them.
type words []string

func (w *words) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind == yaml.ScalarNode {
		*w = words{n.Value}
		return nil
	}
	return n.Decode((*[]string)(w))
}

// A duration is as rules write it.
type duration time.Duration

func (d *duration) UnmarshalYAML(n *yaml.Node) error {
	v, err := units.ParseDuration(n.Value)
	if n.Kind == yaml.ScalarNode && n.Value == "0" {
		v, err = 0, nil
	}
	if n.Kind != yaml.ScalarNode || err != nil {
		return fmt.Errorf("line %d: %q is not a duration such as 10ms, 5m or 1d12h", n.Line, n.Value)
	}
	*d = duration(v)
	return nil
}

// An instant is a time of RFC 3339.
type instant struct{ time.Time }

func (i *instant) UnmarshalYAML(n *yaml.Node) (err error) {
	if i.Time, err = time.Parse(time.RFC3339Nano, n.Value); err != nil {
		return fmt.Errorf("line %d: start: %q is not a time such as 2026-01-31T23:59:00Z", n.Line, n.Value)
	}
	return nil
}

// A policy is in the words of the commands: key, algorithm, limit, window, rate, burst.
type policy struct {
	key     string
	figures policies.Figures
}

func (p *policy) UnmarshalYAML(n *yaml.Node) error {
	var cells map[string]string
	if err := n.Decode(&cells); err != nil {
		return err
	}
	err := errors.New("key is missing")
	if key, ok := cells["key"]; ok {
		p.key, err = policies.Normalize(key)
	}
	delete(cells, "key")
	var g table.Given
	rules, older := g.Words()
	for _, w := range append(rules, older...) {
		*w.Text = cells[w.Name]
		delete(cells, w.Name)
	}
	for name := range cells {
		err = fmt.Errorf("unknown field %s", name)
	}
	if err == nil {
		p.figures, err = g.Figures()
	}
	if err != nil {
		return fmt.Errorf("line %d: policy: %w", n.Line, err)
	}
	return nil
}
