package accesslog

import (
	"slices"
	"unicode/utf8"

	"github.com/headgate-rls/headgate/internal/kit/protofields"
	"github.com/headgate-rls/headgate/ratelimit/leases"
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

	fieldStructFields = 1

	fieldValueString = 3
)

// Values of AccessLogType in envoy/data/accesslog/v3/accesslog.proto.
const (
	typeNotSet             = 0
	typeDownstreamPeriodic = 5
	typeDownstreamEnd      = 6
)

// Changes are what one or more messages ask for.
type changes struct {
	node    string   // the first one's sender, "" if it does not say
	renew   []string // tokens
	release []string
	events  [leases.NumLogEvents]int

	size int // of the tokens in memory, about
}

// merge adds what a later message says.
func (o *changes) merge(later *changes) {
	o.renew = append(o.renew, later.renew...)
	o.release = append(o.release, later.release...)
	for i, n := range later.events {
		o.events[i] += n
	}
	o.size += later.size
}

// decode decodes a StreamAccessLogsMessage. It counts and ignores malformed
// entries.
func (c *Config) decode(message []byte) *changes {
	o := new(changes)
	f := protofields.Of(message)
	for f.Next() {
		switch {
		case f.IsBytes(fieldMessageIdentifier):
			if id := nodeID(f.Value); id != "" {
				o.node = id
			}
		case f.IsBytes(fieldMessageHTTP):
			c.entries(f.Value, o)
		}
	}
	if f.Malformed {
		o.events[leases.EntryMalformed]++
	}
	return o
}

func nodeID(identifier []byte) (id string) {
	c := protofields.Of(identifier)
	for c.Next() {
		if !c.IsBytes(fieldIdentifierNode) {
			continue
		}
		node := protofields.Of(c.Value)
		for node.Next() {
			if node.IsBytes(fieldNodeID) {
				id = ownerName(node.Value)
			}
		}
	}
	return id
}

// maxOwner bounds a proxy's name in logs, in bytes.
const maxOwner = 256

// ownerName returns a proxy's name, "" if it is too long or no text.
func ownerName[T []byte | string](name T) string {
	if len(name) > maxOwner || !utf8.ValidString(string(name)) {
		return ""
	}
	return string(name)
}

func (c *Config) entries(list []byte, o *changes) {
	f := protofields.Of(list)
	for n := 0; f.Next(); {
		if !f.IsBytes(fieldEntriesEntry) {
			continue
		}
		if n++; n > c.MaxEntries {
			o.events[leases.EntryDropped]++
			continue
		}
		o.events[c.entry(f.Value, o)]++
	}
	if f.Malformed {
		o.events[leases.EntryMalformed]++
	}
}

// entry adds the tokens of an entry to o, and returns the event to count.
func (c *Config) entry(entry []byte, o *changes) leases.LogEvent {
	var common common
	f := protofields.Of(entry)
	for f.Next() {
		if f.IsBytes(fieldEntryCommon) && !common.read(f.Value) {
			return leases.EntryMalformed
		}
	}
	if f.Malformed {
		return leases.EntryMalformed
	}
	event := common.event()
	if event == leases.EntryIgnored {
		return event
	}
	tokens, ok := c.tokens(nil, common.metadata)
	switch {
	case !ok:
		return leases.EntryMalformed
	case len(tokens) == 0:
		return leases.EntryIgnored
	case event == leases.EntryRenews:
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
	kind         int32
	intermediate bool
}

// read reports whether properties could be read.
func (p *common) read(properties []byte) bool {
	c := protofields.Of(properties)
	for c.Next() {
		switch {
		case c.IsBytes(fieldCommonMetadata):
			p.metadata = c.Value
		case c.IsNumber(fieldCommonIntermediate):
			p.intermediate = c.Number != 0
		case c.IsNumber(fieldCommonType):
			p.kind = int32(c.Number) // as generated code truncates it
		}
	}
	return !c.Malformed
}

// event returns what the entry does to its leases. An Envoy that sends no types
// marks intermediate entries by the flag alone.
func (p *common) event() leases.LogEvent {
	switch {
	case p.kind == typeDownstreamEnd:
		return leases.EntryReleases
	case p.kind == typeDownstreamPeriodic || p.intermediate:
		return leases.EntryRenews
	case p.kind == typeNotSet:
		return leases.EntryReleases
	}
	return leases.EntryIgnored
}

// tokens appends the leases in an entry's metadata, and reports whether that
// could be read.
func (c *Config) tokens(list []string, metadata []byte) ([]string, bool) {
	f := protofields.Of(metadata)
	for f.Next() {
		if !f.IsBytes(fieldMetadataFilters) {
			continue
		}
		namespace, fields, ok := protofields.Entry(f.Value)
		if ok && contains(c.Namespaces, namespace) {
			list, ok = c.inNamespace(list, fields)
		}
		if !ok {
			return list, false
		}
	}
	return list, !f.Malformed
}

func (c *Config) inNamespace(list []string, fields []byte) ([]string, bool) {
	f := protofields.Of(fields)
	for f.Next() {
		if !f.IsBytes(fieldStructFields) {
			continue
		}
		key, value, ok := protofields.Entry(f.Value)
		if ok && contains(c.Keys, key) {
			var token []byte
			if token, ok = protofields.Bytes(value, fieldValueString); len(token) > 0 && len(token) <= leases.MaxLen {
				list = append(list, string(token))
			}
		}
		if !ok {
			return list, false
		}
	}
	return list, !f.Malformed
}

func contains(list []string, name []byte) bool {
	return slices.ContainsFunc(list, func(s string) bool { return s == string(name) })
}
