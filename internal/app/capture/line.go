package capture

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strconv"
	"strings"

	"github.com/headgate-rls/headgate/internal/kit/units"
	"github.com/headgate-rls/headgate/limit"
	"github.com/headgate-rls/headgate/ratelimit"
)

const timeLayout = "2006-01-02T15:04:05.000000Z"

// begin is how a line begins; then the time of the end may follow, and then what tail appends.
func begin(b []byte, at limit.Instant) []byte {
	b = append(b, `{"t":"`...)
	return append(at.Time().AppendFormat(b, timeLayout), '"')
}

func until(b []byte, at limit.Instant) []byte {
	b = append(b, `,"until":"`...)
	return append(at.Time().AppendFormat(b, timeLayout), '"')
}

// spent appends how a request with reservations has ended, and its cost, if they are known.
func spent(b []byte, how ratelimit.ReservationEnd, cost int64) []byte {
	switch how {
	case ratelimit.Settled, ratelimit.Cancelled:
		return strconv.AppendInt(append(b, `,"cost":`...), cost, 10)
	case ratelimit.Failed:
		return append(b, `,"failed":true`...)
	}
	return b
}

// tail appends a request and its answer, without the times.
func (c *Config) tail(b []byte, a *ratelimit.Asked) []byte {
	req := a.Request
	b = appendText(append(b, `,"domain":`...), req.Domain)
	b = append(b, `,"descriptors":[`...)
	for i := range req.Descriptors {
		if !a.Asks(i) {
			continue
		}
		if b[len(b)-1] != '[' {
			b = append(b, ',')
		}
		b = c.descriptor(b, &req.Descriptors[i])
	}
	b = append(b, ']')
	if req.Hits > 0 {
		b = strconv.AppendUint(append(b, `,"hitsAddend":`...), uint64(req.Hits), 10)
	}
	if a.Estimate > 0 {
		b = strconv.AppendInt(append(b, `,"estimate":`...), a.Estimate, 10)
	}
	if !a.Refused {
		return append(b, `,"code":"OK"}`+"\n"...)
	}
	b = appendText(append(b, `,"code":"OVER_LIMIT","rule":`...), a.Rule)
	return append(b, "}\n"...)
}

func (c *Config) descriptor(b []byte, d *ratelimit.Descriptor) []byte {
	b = append(b, `{"entries":[`...)
	for j := range d.Entries {
		if j > 0 {
			b = append(b, ',')
		}
		b = appendText(append(b, `{"key":`...), d.Entries[j].Key)
		value := d.Entries[j].Value
		if c.hashes(d.Entries[j].Key) {
			sum := sha256.Sum256([]byte(value))
			value = "sha256:" + hex.EncodeToString(sum[:8])
		}
		b = append(appendText(append(b, `,"value":`...), value), '}')
	}
	b = append(b, ']')
	if d.HasHits {
		b = append(strconv.AppendUint(append(b, `,"hitsAddend":"`...), d.Hits, 10), '"')
	}
	if d.Refund {
		b = append(b, `,"isNegativeHits":true`...)
	}
	if d.HasOverride {
		o := &d.Override
		b = strconv.AppendUint(append(b, `,"limit":{"requestsPerUnit":`...), uint64(o.RequestsPerUnit), 10)
		if u, ok := units.Numbered(int32(o.Unit)); ok {
			b = appendText(append(b, `,"unit":`...), strings.ToUpper(u.Name))
		}
		if o.Multiplier > 0 {
			b = strconv.AppendUint(append(b, `,"unitMultiplier":`...), uint64(o.Multiplier), 10)
		}
		b = append(b, '}')
	}
	return append(b, '}')
}

// appendText appends a string of JSON.
func appendText(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			text, _ := json.Marshal(s)
			return append(b, text...)
		}
	}
	return append(append(append(b, '"'), s...), '"')
}
