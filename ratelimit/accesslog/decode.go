package accesslog

import (
	"slices"

	accesslogpb "github.com/envoyproxy/go-control-plane/envoy/data/accesslog/v3"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/headgate-rls/headgate/ratelimit/lease"
)

// Messages are decoded by hand: an entry has dozens of fields, of which three
// are of interest. A fuzz test holds the decoder to what generated code does.

// Field numbers of envoy/service/accesslog/v3/als.proto,
// envoy/data/accesslog/v3/accesslog.proto, envoy/config/core/v3/base.proto and
// google/protobuf/struct.proto.
const (
	fieldMessageIdentifier = 1
	fieldMessageHTTP       = 2

	fieldIdentifierNode = 1
	fieldNodeID         = 1

	fieldEntriesEntry = 1

	fieldEntryCommon = 1

	fieldCommonMetadata     = 17
	fieldCommonIntermediate = 27
	fieldCommonType         = 33

	fieldMetadataFilters = 1

	fieldMapKey   = 1
	fieldMapValue = 2

	fieldStructFields = 1

	fieldValueString = 3
)

// Orders are what a few messages say.
type orders struct {
	node    string   // the first one's sender, "" if it does not say
	renew   []string // tokens
	release []string
	events  [NumEvents]int

	size int // of the tokens in memory, about
}

// merge adds what a later message says.
func (o *orders) merge(later *orders) {
	o.renew = append(o.renew, later.renew...)
	o.release = append(o.release, later.release...)
	for i, n := range later.events {
		o.events[i] += n
	}
	o.size += later.size
}

// decode reads an encoded StreamAccessLogsMessage. What cannot be understood
// is counted and left out.
func (s *server) decode(message []byte) *orders {
	o := new(orders)
	c := cursor{rest: message}
	for c.next() {
		switch {
		case c.isBytes(fieldMessageIdentifier):
			if id := nodeID(c.value); id != "" {
				o.node = id
			}
		case c.isBytes(fieldMessageHTTP):
			s.entries(c.value, o)
		}
	}
	if c.malformed {
		o.events[EntryMalformed]++
	}
	return o
}

func nodeID(identifier []byte) (id string) {
	c := cursor{rest: identifier}
	for c.next() {
		if !c.isBytes(fieldIdentifierNode) {
			continue
		}
		node := cursor{rest: c.value}
		for node.next() {
			if node.isBytes(fieldNodeID) {
				id = ownerName(node.value)
			}
		}
	}
	return id
}

func (s *server) entries(list []byte, o *orders) {
	c := cursor{rest: list}
	for n := 0; c.next(); {
		if !c.isBytes(fieldEntriesEntry) {
			continue
		}
		if n++; n > s.MaxEntries {
			o.events[EntryDropped]++
			continue
		}
		o.events[s.entry(c.value, o)]++
	}
	if c.malformed {
		o.events[EntryMalformed]++
	}
}

// entry adds the leases of an entry to those that it is about, and returns
// what it is.
func (s *server) entry(entry []byte, o *orders) Event {
	var common common
	c := cursor{rest: entry}
	for c.next() {
		if c.isBytes(fieldEntryCommon) && !common.read(c.value) {
			return EntryMalformed
		}
	}
	if c.malformed {
		return EntryMalformed
	}
	event := common.event()
	if event == EntryIgnored {
		return event
	}
	tokens, ok := s.tokens(nil, common.metadata)
	switch {
	case !ok:
		return EntryMalformed
	case len(tokens) == 0:
		return EntryIgnored
	case event == EntryRenews:
		o.renew = append(o.renew, tokens...)
	default:
		o.release = append(o.release, tokens...)
	}
	for _, token := range tokens {
		o.size += len(token) + tokenOverhead
	}
	return event
}

// tokenOverhead is what a token takes besides its characters.
const tokenOverhead = 32

// common is what is of interest in an entry's common properties.
type common struct {
	metadata     []byte
	kind         accesslogpb.AccessLogType
	intermediate bool
}

// read reports whether properties could be read.
func (p *common) read(properties []byte) bool {
	c := cursor{rest: properties}
	for c.next() {
		switch {
		case c.isBytes(fieldCommonMetadata):
			p.metadata = c.value
		case c.isNumber(fieldCommonIntermediate):
			p.intermediate = c.number != 0
		case c.isNumber(fieldCommonType):
			p.kind = accesslogpb.AccessLogType(c.number)
		}
	}
	return !c.malformed
}

// event says what the entry does to its leases. Envoys that tell no types tell
// intermediate entries by the flag alone.
func (p *common) event() Event {
	switch {
	case p.kind == accesslogpb.AccessLogType_DownstreamEnd:
		return EntryReleases
	case p.kind == accesslogpb.AccessLogType_DownstreamPeriodic || p.intermediate:
		return EntryRenews
	case p.kind == accesslogpb.AccessLogType_NotSet:
		return EntryReleases
	}
	return EntryIgnored
}

// tokens appends the leases in an entry's metadata, and reports whether that
// could be read.
func (s *server) tokens(list []string, metadata []byte) ([]string, bool) {
	c := cursor{rest: metadata}
	for c.next() {
		if !c.isBytes(fieldMetadataFilters) {
			continue
		}
		namespace, fields, ok := mapEntry(c.value)
		if ok && contains(s.Namespaces, namespace) {
			list, ok = s.inNamespace(list, fields)
		}
		if !ok {
			return list, false
		}
	}
	return list, !c.malformed
}

func (s *server) inNamespace(list []string, fields []byte) ([]string, bool) {
	c := cursor{rest: fields}
	for c.next() {
		if !c.isBytes(fieldStructFields) {
			continue
		}
		key, value, ok := mapEntry(c.value)
		if ok && contains(s.Keys, key) {
			var token []byte
			if token, ok = text(value); len(token) > 0 && len(token) <= lease.MaxLen {
				list = append(list, string(token))
			}
		}
		if !ok {
			return list, false
		}
	}
	return list, !c.malformed
}

func mapEntry(entry []byte) (key, value []byte, ok bool) {
	c := cursor{rest: entry}
	for c.next() {
		switch {
		case c.isBytes(fieldMapKey):
			key = c.value
		case c.isBytes(fieldMapValue):
			value = c.value
		}
	}
	return key, value, !c.malformed
}

// text returns the string that a google.protobuf.Value is, or nil.
func text(value []byte) (s []byte, ok bool) {
	c := cursor{rest: value}
	for c.next() {
		if c.isBytes(fieldValueString) {
			s = c.value
		}
	}
	return s, !c.malformed
}

func contains(list []string, name []byte) bool {
	return slices.ContainsFunc(list, func(s string) bool { return s == string(name) })
}

// A cursor goes through the fields of an encoded message.
type cursor struct {
	rest      []byte
	malformed bool

	// The field:
	num    protowire.Number
	typ    protowire.Type
	number uint64 // of a varint
	value  []byte // of a string or message
}

// next reads a field, and reports whether there was one.
func (c *cursor) next() bool {
	if len(c.rest) == 0 {
		return false
	}
	num, typ, n := protowire.ConsumeTag(c.rest)
	if n < 0 {
		return c.fail()
	}
	c.num, c.typ, c.number, c.value, c.rest = num, typ, 0, nil, c.rest[n:]
	switch typ {
	case protowire.VarintType:
		c.number, n = protowire.ConsumeVarint(c.rest)
	case protowire.BytesType:
		c.value, n = protowire.ConsumeBytes(c.rest)
	default:
		n = protowire.ConsumeFieldValue(num, typ, c.rest)
	}
	if n < 0 {
		return c.fail()
	}
	c.rest = c.rest[n:]
	return true
}

func (c *cursor) fail() bool {
	c.malformed, c.rest = true, nil
	return false
}

func (c *cursor) isBytes(num protowire.Number) bool {
	return c.num == num && c.typ == protowire.BytesType
}

func (c *cursor) isNumber(num protowire.Number) bool {
	return c.num == num && c.typ == protowire.VarintType
}
