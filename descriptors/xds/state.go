package xds

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"

	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/descriptors/overlay"
	"github.com/headgate-rls/headgate/limit"
)

// A state is which domains are in force. Its unit is a domain: it is replaced by what
// the control plane sends, or it stays as it was.
type state struct {
	overlay  *overlay.Overlay
	overflow limit.Overflow                               // of all limits, where no overlay says
	check    func(*descriptors.Set) []descriptors.Problem // nil: nothing
	maxBytes int                                          // of all domains together

	inForce map[string]*version
	missing []string         // domains in force that the last response did not have
	set     *descriptors.Set // of inForce; nil before the first
}

// An outcome is what would be in force after a response, and what is wrong with it.
type outcome struct {
	set      *descriptors.Set // nil: nothing can be put in force
	domains  map[string]*version
	missing  []string              // domains that the response does not have and that are kept
	rejected map[string]bool       // domains whose new version cannot be used; true: the old one stays
	problems []descriptors.Problem // that reject something
	warnings []descriptors.Problem // that do not
}

func (o *outcome) reject(problem string, args ...any) {
	o.problems = append(o.problems, descriptors.Problem{File: source, Message: fmt.Sprintf(problem, args...)})
}

// split adds the problems of one part to those that reject and those that do not.
func (o *outcome) split(problems []descriptors.Problem) {
	for _, p := range problems {
		if p.Warning {
			o.warnings = append(o.warnings, p)
		} else {
			o.problems = append(o.problems, p)
		}
	}
}

// consider finds what a response of these resources puts in force. Bad are resources of
// which not even the domain is known. Domains that the response does not have are kept if keep
// says so, and while any resource is bad: it may be theirs.
func (s *state) consider(list []resource, bad []descriptors.Problem, keep bool) *outcome {
	o := &outcome{domains: map[string]*version{}, rejected: map[string]bool{}, problems: bad}
	sent := map[string]bool{}
	for _, parts := range groups(list, func(r resource) string { return r.domain }) {
		sent[parts[0].domain] = true
		s.renew(o, parts)
	}
	for _, name := range slices.Sorted(maps.Keys(s.inForce)) {
		if !sent[name] && (keep || len(bad) > 0) {
			o.domains[name], o.missing = s.inForce[name], append(o.missing, name)
		}
	}
	if err := s.fits(o); err != nil && len(o.missing) > 0 {
		for _, name := range o.missing { // what nobody wants any more goes first
			delete(o.domains, name)
		}
		o.missing = nil
	}
	if err := s.fits(o); err != nil {
		o.reject("all rules together: %v", err)
		return o
	}
	s.compile(o)
	return o
}

// renew adds the new version of the domain of parts to o, or the one in force if it is the same or
// the new one cannot be used.
func (s *state) renew(o *outcome, parts []resource) {
	name, raw := parts[0].domain, make([][]byte, len(parts))
	var held size
	for i := range parts {
		raw[i] = parts[i].raw
		held.add(parts[i].size)
	}
	old, print := s.inForce[name], fingerprintOf(raw)
	if old != nil && old.print == print {
		o.domains[name] = old
		return
	}
	var problems descriptors.Problems
	v := decode(name, print, raw, &translator{&problems, s.overflow}, old)
	v.size = held
	if problems.Failed() {
		s.refuse(o, name, problems.Sorted())
		return
	}
	v.warn = problems.Sorted()
	v.lay(s.overlay)
	o.domains[name] = v
}

// refuse keeps the version of a domain that is in force, if there is one.
func (s *state) refuse(o *outcome, name string, problems []descriptors.Problem) {
	o.split(problems)
	old := s.inForce[name]
	o.rejected[name] = old != nil
	if old != nil {
		o.domains[name] = old
	} else {
		delete(o.domains, name)
	}
}

// fits reports whether the domains of o are within bounds together.
func (s *state) fits(o *outcome) error {
	if len(o.domains) > maxDomains {
		return fmt.Errorf("more than %d domains", maxDomains)
	}
	var all size
	bytes := 0
	for _, v := range o.domains {
		all.add(v.size)
		bytes += v.bytes
	}
	if bytes > s.maxBytes {
		return fmt.Errorf("they have %d bytes; at most %d are kept", bytes, s.maxBytes)
	}
	return all.check()
}

// compile builds the domains of o. If they cannot be built together, those that are new
// are built by themselves, to find which of them to refuse.
func (s *state) compile(o *outcome) {
	set, problems := s.build(o.domains)
	if set == nil {
		for _, name := range slices.Sorted(maps.Keys(o.domains)) {
			if o.domains[name] != s.inForce[name] {
				s.alone(o, name)
			}
		}
		set, problems = s.build(o.domains)
	}
	o.set = set
	if set == nil {
		o.reject("all rules together cannot be used")
	}
	o.split(problems)
	var results []overlay.Result
	for _, name := range slices.Sorted(maps.Keys(o.domains)) {
		v := o.domains[name]
		o.split(v.warn)
		o.split(v.laid.Warnings)
		results = append(results, v.laid)
	}
	if set != nil {
		o.split(s.overlay.Unused(results))
	}
}

// alone refuses a domain that cannot be used by itself. If that is the overlay's fault it
// is used as it was sent.
func (s *state) alone(o *outcome, name string) {
	v := o.domains[name]
	set, wrong := s.build(map[string]*version{name: v})
	if set != nil {
		return
	}
	if v.laid.Changed {
		plain := *v
		plain.lay(nil)
		if set, _ := s.build(map[string]*version{name: &plain}); set != nil {
			for _, p := range wrong {
				p.Message, p.Warning = "the overlay is not laid over this domain: "+p.Message, true
				o.warnings = append(o.warnings, p)
			}
			o.domains[name] = &plain
			return
		}
	}
	s.refuse(o, name, wrong)
}

// build compiles domains, and checks whether the backend can keep their limits.
func (s *state) build(domains map[string]*version) (*descriptors.Set, []descriptors.Problem) {
	spec := &descriptors.Spec{Hash: s.hash(domains)}
	for _, name := range slices.Sorted(maps.Keys(domains)) {
		spec.Domains = append(spec.Domains, domains[name].laid.Domain)
	}
	var problems descriptors.Problems
	set := descriptors.Rebuild(s.set, spec, &problems)
	if set != nil && s.check != nil {
		problems.Add(s.check(set)...)
		if problems.Failed() {
			set = nil
		}
	}
	return set, problems.Sorted()
}

// hash returns a number of 52 bits that stands for domains under the overlay.
func (s *state) hash(domains map[string]*version) uint64 {
	h := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(domains)) {
		h.Write(domains[name].print[:])
	}
	h.Write(s.overlay.Sum())
	return binary.BigEndian.Uint64(h.Sum(nil)) >> 12
}

// take notes that o is in force now.
func (s *state) take(o *outcome) { s.inForce, s.missing, s.set = o.domains, o.missing, o.set }

// relay returns the domains that are in force under another overlay, without those that
// are not sent any more unless keep says so.
func (s *state) relay(o *overlay.Overlay, keep bool) *outcome {
	next := &outcome{domains: map[string]*version{}, rejected: map[string]bool{}}
	gone := map[string]bool{}
	for _, name := range s.missing {
		gone[name] = !keep
	}
	for name, v := range s.inForce {
		if gone[name] {
			continue
		}
		if o != s.overlay {
			again := *v
			again.lay(o)
			v = &again
		}
		next.domains[name] = v
	}
	if keep {
		next.missing = s.missing
	}
	before := s.overlay
	s.overlay = o
	s.compile(next)
	if next.set == nil {
		s.overlay = before
	}
	return next
}
