package xds

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	rlsconf "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/internal/kit/units"
	"github.com/headgate-rls/headgate/limit"
)

// source is what problems call the place that rules come from.
const source = "xds"

// A translator makes the rules of a domain from messages.
type translator struct {
	problems *descriptors.Problems
	overflow limit.Overflow // of all limits
}

// A node is a place in the tree of descriptors; that of a domain has no parent.
type node struct {
	parent     *node
	key, value string
}

// String is the place in the tree, as descriptors.Build names it.
func (n *node) String() string {
	if n == nil {
		return ""
	}
	return descriptors.TreePath(n.parent.String(), n.key, n.value)
}

func (t *translator) errorf(n *node, format string, args ...any) {
	t.problems.Add(descriptors.Problem{File: source, Path: n.String(), Message: fmt.Sprintf(format, args...)})
}

func (t *translator) warnf(n *node, format string, args ...any) {
	t.problems.Add(descriptors.Problem{File: source, Path: n.String(), Message: fmt.Sprintf(format, args...),
		Warning: true})
}

// config reads one message of a domain. It returns the descriptors at its top, encoded.
func (t *translator) config(encoded []byte, at *node) (list [][]byte, err error) {
	const descriptors = 3
	var rest []byte
	for len(encoded) > 0 {
		num, typ, n := protowire.ConsumeField(encoded)
		if n < 0 {
			return nil, errMalformed
		}
		if num == descriptors && typ == protowire.BytesType {
			_, _, tag := protowire.ConsumeTag(encoded)
			value, _ := protowire.ConsumeBytes(encoded[tag:])
			list = append(list, value)
		} else {
			rest = append(rest, encoded[:n]...)
		}
		encoded = encoded[n:]
	}
	var other rlsconf.RateLimitConfig
	if err := proto.Unmarshal(rest, &other); err != nil {
		return nil, err
	}
	t.unknown(at, other.ProtoReflect().GetUnknown())
	return list, nil
}

// branch makes a rule at the top of a domain, and those below it, of encoded descriptors that have
// the same key and value.
func (t *translator) branch(encoded [][]byte, domain *node) *branch {
	var problems descriptors.Problems
	own := &translator{&problems, t.overflow}
	var group []*rlsconf.RateLimitDescriptor
	for _, b := range encoded {
		d := new(rlsconf.RateLimitDescriptor)
		if err := (proto.UnmarshalOptions{RecursionLimit: recursionLimit - 1}).Unmarshal(b, d); err != nil {
			own.errorf(domain, "a RateLimitConfig cannot be decoded: %v", err)
			continue
		}
		group = append(group, d)
	}
	made := &branch{}
	if len(group) > 0 {
		made.rule = own.rule(group, &node{domain, group[0].GetKey(), group[0].GetValue()})
	}
	made.warn = problems.Sorted()
	return made
}

// unknown warns of fields that this version does not know. To refuse the domain would
// leave it without the rest of its rules.
func (t *translator) unknown(at *node, fields []byte) {
	if len(fields) > 0 {
		t.warnf(at, "the message has fields that this version of headgate does not know; they have no effect")
	}
}

func (t *translator) rules(list []*rlsconf.RateLimitDescriptor, at *node) []*descriptors.RuleSpec {
	if len(list) == 0 {
		return nil
	}
	rules := make([]*descriptors.RuleSpec, 0, len(list))
	for _, group := range groups(list, idOf) {
		rules = append(rules, t.rule(group, &node{at, group[0].GetKey(), group[0].GetValue()}))
	}
	return rules
}

// rule makes one rule of descriptors that have the same key and value.
func (t *translator) rule(group []*rlsconf.RateLimitDescriptor, at *node) *descriptors.RuleSpec {
	r := &descriptors.RuleSpec{Key: at.key, Value: at.value}
	r.Place = descriptors.Place{File: source}
	r.Quota = true
	var limits []descriptors.LimitSpec
	below := group[0].GetDescriptors()
	for i, d := range group {
		if s, ok := t.limit(d, at); ok {
			limits = append(limits, s)
		}
		r.Quota = r.Quota && d.GetQuotaMode()
		r.DetailedMetric = r.DetailedMetric || d.GetDetailedMetric()
		if d.GetMetadata() != nil {
			joined := d.GetMetadata().AsMap()
			maps.Copy(joined, r.Metadata) // what is there wins
			r.Metadata = joined
		}
		t.unknown(at, d.ProtoReflect().GetUnknown())
		if i > 0 {
			below = append(slices.Clip(below), d.GetDescriptors()...)
		}
	}
	if combine(limits, &r.Body) {
		t.warnf(at, "the control plane sends the key and value %d times with different limits; "+
			"the strictest of them applies", len(group))
	}
	r.Rules = t.rules(below, at)
	return r
}

// limit translates the limit of one descriptor, if it has one. Build checks it.
func (t *translator) limit(d *rlsconf.RateLimitDescriptor, at *node) (s descriptors.LimitSpec, ok bool) {
	p := d.GetRateLimit()
	if p == nil {
		return s, false
	}
	t.unknown(at, p.ProtoReflect().GetUnknown())
	s.Name, s.Shadow, s.Unlimited = p.GetName(), d.GetShadowMode(), p.GetUnlimited()
	for _, to := range p.GetReplaces() {
		s.Replaces = append(s.Replaces, descriptors.Replaced{Name: to.GetName()})
	}
	number := p.GetUnit()
	if s.Unlimited {
		if number != rlsconf.RateLimitUnit_UNKNOWN {
			t.errorf(at, "unlimited and unit contradict each other")
		}
		return s, true
	}
	unit, known := units.Numbered(int32(number))
	switch {
	case number == rlsconf.RateLimitUnit_UNKNOWN:
		t.errorf(at, "rate_limit has no unit; it must be one of %s", strings.Join(units.Names(), ", "))
		return s, false
	case !known:
		t.errorf(at, "rate_limit has the unit number %d, which this version of headgate does not know", number)
		return s, false
	}
	s.Figures = limit.Spec{Algorithm: limit.FixedWindow, Max: int64(p.GetRequestsPerUnit()), Window: unit.Length,
		Overflow: t.overflow}
	s.AnyMonth = unit.Length == units.Month
	return s, true
}
