package ruletest

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/descriptors/files"
	"github.com/headgate-rls/headgate/descriptors/rulefile"
	"github.com/headgate-rls/headgate/internal/app/virtual"
	"github.com/headgate-rls/headgate/internal/kit/spell"
	"github.com/headgate-rls/headgate/internal/kit/units"
	"github.com/headgate-rls/headgate/limit"
	"github.com/headgate-rls/headgate/policies"
	"github.com/headgate-rls/headgate/ratelimit"
)

// A Result is what came of a file.
type Result struct {
	File  string       `json:"file"`
	OK    bool         `json:"ok"`
	Tests []TestResult `json:"tests"`
}

// A TestResult is what came of a test.
type TestResult struct {
	Name     string    `json:"name"`
	OK       bool      `json:"ok"`
	Steps    int       `json:"steps"`
	Requests int       `json:"requests"`
	Failures []Failure `json:"failures,omitempty"`

	took time.Duration
}

// A Failure is a step that was answered otherwise than wanted.
type Failure struct {
	Line int    `json:"line"`
	Step string `json:"step"`
	Got  string `json:"got"`
	Want string `json:"want"`
}

// Run runs the tests of a file whose names contain filter. The error is the system's, or reports that the file or its
// rules are invalid.
func Run(name, filter string) (Result, error) {
	result := Result{File: name, OK: true}
	f, err := read(name)
	if err != nil {
		return result, err
	}
	set, _, err := files.Load(f.Rules, rulefile.Options{})
	if err != nil {
		return result, fmt.Errorf("%s: rules: %w", name, err)
	}
	for i, t := range f.Tests {
		t.Name = cmp.Or(t.Name, fmt.Sprintf("test %d", i+1))
		if !strings.Contains(t.Name, filter) {
			continue
		}
		r, err := f.run(set, t)
		if err != nil {
			return result, fmt.Errorf("%s:%w", name, err)
		}
		result.OK = result.OK && r.OK
		result.Tests = append(result.Tests, r)
	}
	return result, nil
}

// run runs one test. Its error begins with a line.
func (f *file) run(set *descriptors.Set, t *test) (r TestResult, err error) {
	began := time.Now()
	r = TestResult{Name: t.Name, Steps: len(t.Steps)}
	inForce, err := snapshot(f.Policies, t.Policies)
	if err != nil {
		return r, fmt.Errorf("%d: %w", t.line, err)
	}
	w, err := virtual.New(set, virtual.Options{Policies: inForce})
	if err != nil {
		return r, fmt.Errorf("%d: %w", t.line, err)
	}
	defer w.Close()
	start := defaultStart
	for _, s := range []instant{f.Start, t.Start} {
		if !s.IsZero() {
			start = s.Time
		}
	}
	given := slices.Concat(f.Policies, t.Policies)
	for _, s := range t.Steps {
		given = append(given, s.Policies...)
		if len(s.Policies) > 0 {
			if inForce, err = snapshot(given); err != nil {
				return r, fmt.Errorf("%d: %w", s.line, err)
			}
			w.SetPolicies(inForce)
		}
		if len(s.Ask) == 0 {
			continue
		}
		if s.request.Domain, err = domainOf(set, s.Domain, t.Domain, f.Domain); err != nil {
			return r, fmt.Errorf("%d: %w", s.line, err)
		}
		r.Requests += s.times()
		if failure := s.run(w, set, limit.InstantOf(start)); failure != nil {
			r.Failures = append(r.Failures, *failure)
		}
	}
	r.OK, r.took = len(r.Failures) == 0, time.Since(began)
	return r, nil
}

// snapshot returns the policies of lists; of a key the last one counts.
func snapshot(lists ...[]policy) (*policies.Snapshot, error) {
	last := map[string]policies.Figures{}
	for _, p := range slices.Concat(lists...) {
		last[p.key] = p.figures
	}
	var b policies.Builder
	for key, figures := range last {
		b.Add(key, figures)
	}
	s := b.Snapshot()
	if s.Unusable() > 0 {
		key, err := s.UnusableOne()
		return nil, fmt.Errorf("policy %s: %w", key, err)
	}
	return s, nil
}

// domainOf returns the first domain that is named, or else the only one of the rules.
func domainOf(set *descriptors.Set, named ...string) (string, error) {
	all := set.Domains()
	domain := cmp.Or(named...)
	switch {
	case domain == "" && len(all) == 1:
		return all[0], nil
	case domain == "":
		return "", fmt.Errorf("domain is missing; the rules have %s", spell.OneOf(all))
	case !slices.Contains(all, domain):
		return "", fmt.Errorf("the rules have no domain %q%s", domain, spell.DidYouMean(domain, all))
	}
	return domain, nil
}

// run asks what a step asks, and returns the first answer that is not as wanted.
func (s *step) run(w *virtual.World, set *descriptors.Set, start limit.Instant) (failed *Failure) {
	refused, limited := 0, false
	for i := range s.times() {
		var resp ratelimit.Response
		at := start.Add(time.Duration(s.At) + time.Duration(i)*time.Duration(s.Every))
		w.Decide(at, &s.request, &resp)
		s.end(w, &resp, at)
		if resp.OverLimit {
			refused++
		}
		got, want := s.compare(&resp)
		limited = limited || resp.Inside.Rule != ""
		if failed == nil && got != "" {
			if s.times() > 1 {
				got = fmt.Sprintf("request %d of %d: %s", i+1, s.times(), got)
			}
			failed = &Failure{Line: s.line, Step: s.String(), Got: got, Want: want}
		}
	}
	if failed == nil && s.Refused != nil && refused != *s.Refused {
		failed = &Failure{Line: s.line, Step: s.String(), Got: fmt.Sprintf("%d of %d refused", refused, s.times()),
			Want: fmt.Sprintf("%d refused", *s.Refused)}
	}
	if failed != nil && !limited {
		failed.Got += "; no limit applies"
		if why := set.WhyNoMatch(s.request.Domain, s.request.Descriptors[0].Entries); why != "" {
			failed.Got += ": " + why
		}
	}
	return failed
}

// end ends a request that began at an instant, if the step says when or with what cost.
func (s *step) end(w *virtual.World, resp *ratelimit.Response, at limit.Instant) {
	cost := int64(-1)
	if s.Cost != nil {
		cost = *s.Cost
	}
	if s.Hold != nil {
		w.Hold(resp, at.Add(time.Duration(*s.Hold)), cost)
	} else if s.Cost != nil {
		w.Hold(resp, at, cost)
	}
}

// compare returns what an answer has otherwise than wanted, and what is wanted; "" if there is nothing.
func (s *step) compare(resp *ratelimit.Response) (got, want string) {
	if resp.Err != nil {
		return "error: " + resp.Err.Message, s.Want
	}
	in := &resp.Inside
	code := wantOK
	if resp.OverLimit {
		code = wantOver
	}
	if s.Want != "" && code != s.Want {
		return describe(code, in), s.Want
	}
	if s.Refused != nil && !resp.OverLimit {
		return "", "" // the rest is about those that are refused
	}
	if s.Chosen != nil && !maps.Equal(in.Chosen, s.Chosen) {
		return fmt.Sprintf("chosen %v", in.Chosen), fmt.Sprintf("chosen %v", s.Chosen)
	}
	if s.Rule != "" && in.Rule != s.Rule {
		return fmt.Sprintf("rule %q", in.Rule), fmt.Sprintf("rule %q", s.Rule)
	}
	if s.Retry != nil && in.Wait != time.Duration(*s.Retry) {
		return "retry " + wait(in.Wait), "retry " + wait(time.Duration(*s.Retry))
	}
	if s.Remaining != nil && in.Remaining != *s.Remaining {
		return fmt.Sprintf("remaining %d", in.Remaining), fmt.Sprintf("remaining %d", *s.Remaining)
	}
	if status := statusOf(resp); s.Status != 0 && status != s.Status {
		return fmt.Sprintf("status %d", status), fmt.Sprintf("status %d", s.Status)
	}
	if s.Delay != nil && in.Delay != time.Duration(*s.Delay) {
		return "delay " + wait(in.Delay), "delay " + wait(time.Duration(*s.Delay))
	}
	return "", ""
}

// statusOf returns the status that Envoy answers with.
func statusOf(resp *ratelimit.Response) int {
	switch t := resp.Inside.Tier; {
	case !resp.OverLimit:
		return 200
	case t != nil && t.Status != 0:
		return t.Status
	}
	return 429
}

func describe(code string, in *ratelimit.Inside) string {
	text := code
	if in.Rule == "" {
		return text
	}
	text += fmt.Sprintf(" rule %s, remaining %d", in.Rule, in.Remaining)
	if code == wantOver {
		text += ", retry " + wait(in.Wait)
	}
	return text
}

func wait(d time.Duration) string {
	if d == limit.Never {
		return "never"
	}
	return units.Format(d)
}
