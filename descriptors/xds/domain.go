package xds

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"

	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/descriptors/overlay"
	"github.com/headgate-rls/headgate/internal/kit/protofields"
)

// A fingerprint identifies what a domain was made from.
type fingerprint [sha256.Size]byte

// A version is a domain as the control plane has sent it.
type version struct {
	print fingerprint
	raw   [][]byte // encoded RateLimitConfigs: the parts of the domain, in order
	bytes int      // of raw
	size  size
	spec  *descriptors.DomainSpec
	warn  []descriptors.Problem
	laid  overlay.Result // of spec

	branches map[fingerprint]*branch // of spec
}

// A branch is a rule at the top of a domain and all below it. The next version has the same one if
// its bytes are the same, and descriptors.Rebuild then need not compile it.
type branch struct {
	rule *descriptors.RuleSpec
	warn []descriptors.Problem
}

// lay lays an overlay over the rules that were sent.
func (v *version) lay(o *overlay.Overlay) { v.laid = o.Apply(v.spec) }

// fingerprintOf returns the fingerprint of the parts of a domain.
func fingerprintOf(raw [][]byte) fingerprint {
	h := sha256.New()
	var n [8]byte
	for _, b := range raw {
		binary.BigEndian.PutUint64(n[:], uint64(len(b)))
		h.Write(n[:])
		h.Write(b)
	}
	return fingerprint(h.Sum(nil))
}

// domainOf returns the domain of an encoded RateLimitConfig.
func domainOf(config []byte) (string, error) {
	const domain = 2
	name, ok := protofields.Bytes(config, domain)
	switch {
	case !ok:
		return "", errMalformed
	case len(name) == 0:
		return "", fmt.Errorf("a RateLimitConfig has no domain")
	case len(name) > maxName:
		return "", fmt.Errorf("the name of a domain has %d bytes; at most %d are allowed", len(name), maxName)
	}
	return string(name), nil
}

// recursionLimit bounds messages within messages: descriptors, and metadata in them.
const recursionLimit = 2 * maxDepth

// decode makes the version of a domain from its parts, which it copies: they are slices
// of a message that would be kept as a whole. What is wrong goes to problems. Branches that
// old has are not decoded; old may be nil.
func decode(name string, print fingerprint, raw [][]byte, t *translator, old *version) *version {
	v := &version{print: print, branches: map[fingerprint]*branch{}}
	at := &node{key: name}
	v.spec = &descriptors.DomainSpec{Name: name, Place: descriptors.Place{File: source}}
	var list [][]byte
	for _, b := range raw {
		more, err := t.config(b, at)
		if err != nil {
			t.errorf(at, "a RateLimitConfig cannot be decoded: %v", err)
			return v
		}
		list = append(list, more...)
		v.raw, v.bytes = append(v.raw, bytes.Clone(b)), v.bytes+len(b)
	}
	for _, group := range groups(list, idOfEncoded) {
		print := fingerprintOf(group)
		var made *branch
		if old != nil {
			made = old.branches[print]
		}
		if made == nil {
			made = t.branch(group, at)
		}
		t.problems.Add(made.warn...)
		v.branches[print] = made
		v.spec.Rules = append(v.spec.Rules, made.rule)
	}
	return v
}

// A resource is one RateLimitConfig of a response, not decoded yet.
type resource struct {
	domain string
	raw    []byte
	size   size
}
