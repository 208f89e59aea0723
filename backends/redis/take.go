package redis

import (
	"crypto/sha1"
	_ "embed"
	"encoding/binary"
	"encoding/hex"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate-rls/headgate/limit"
)

//go:embed take.lua
var takeScript string

var takeSHA = func() string {
	sum := sha1.Sum([]byte(takeScript))
	return hex.EncodeToString(sum[:])
}()

// Bits of an op beside its algorithm, as take.lua reads them.
const (
	bitShadow  = 8
	bitEach    = 16
	bitSettle  = 32
	bitHadRoom = 64
)

// A call is one call of the script: requests, or parts of requests, whose
// keys live in one place.
type call struct {
	slot     int // of a Cluster
	requests int
	keys     []string
	pointers []*string // to keys, for the driver
	index    map[limit.Key]int
	ops      int
	weight   int // see Backend.weight
	blob     []byte
	salt     []byte

	withText bool // EVAL instead of EVALSHA
	args     []any
	cmd      *redis.StringCmd
	err      error
	reply    string
	clock    limit.Instant
}

func (c *call) reset(layout Layout) {
	if c.index == nil {
		c.index = map[limit.Key]int{}
	}
	clear(c.index)
	clear(c.keys)
	clear(c.args)
	*c = call{
		keys: c.keys[:0], pointers: c.pointers[:0], index: c.index,
		blob: append(c.blob[:0], byte(layout), 0, 0), salt: c.salt[:0], args: c.args[:0],
	}
}

// flagDry in a blob's first byte makes the script record nothing.
const flagDry = 2

// add begins a request of n ops at an instant.
func (c *call) add(at limit.Instant, n int) {
	c.requests++
	binary.LittleEndian.PutUint16(c.blob[1:], uint16(c.requests))
	c.blob = appendFloat(c.blob, float64(at))
	c.blob = binary.LittleEndian.AppendUint16(c.blob, uint16(n))
}

// addOp adds an op to the request begun last and returns its number, by which
// the members of a zset are told apart.
func (c *call) addOp(b *Backend, op *limit.Op, bits byte) int {
	c.ops++
	c.op(op, c.key(b, op), c.ops, op.Cost, bits|flagsOf(op))
	return c.ops
}

func flagsOf(op *limit.Op) byte {
	var bits byte
	if op.Shadow {
		bits |= bitShadow
	}
	if op.Each {
		bits |= bitEach
	}
	return bits
}

func (c *call) op(op *limit.Op, key, number int, cost int64, bits byte) {
	l := op.Limit
	var x, y int64
	switch l.Algorithm() {
	case limit.SlidingWindow:
		x, y = l.Grid()
	case limit.TokenBucket:
		x, y = l.Interval()
	}
	c.blob = append(c.blob, byte(l.Algorithm())|bits)
	c.blob = binary.LittleEndian.AppendUint16(c.blob, uint16(key))
	c.blob = binary.LittleEndian.AppendUint16(c.blob, uint16(number))
	// A cost beyond any capacity need not be exact, only a double.
	c.blob = appendFloat(c.blob, float64(min(max(cost, -1<<53), 1<<53)))
	c.blob = appendFloat(c.blob, float64(l.Capacity()))
	c.blob = appendFloat(c.blob, float64(l.Window().Microseconds()))
	c.blob = appendFloat(c.blob, float64(x))
	c.blob = appendFloat(c.blob, float64(y))
}

// key returns the position of op's key in KEYS, from 1.
func (c *call) key(b *Backend, op *limit.Op) int {
	k := op.Key
	if b.shares(op) {
		k.Limit = "" // all limits of the group are one log
	}
	if i, ok := c.index[k]; ok {
		return i
	}
	c.keys = append(c.keys, b.keyOf(op))
	c.index[k] = len(c.keys)
	return len(c.keys)
}

func appendFloat(b []byte, f float64) []byte {
	return binary.LittleEndian.AppendUint64(b, math.Float64bits(f))
}

// arguments builds the command. Arguments are pointers where that saves the
// driver's boxing.
func (c *call) arguments() []any {
	c.args = c.args[:0]
	if c.withText {
		c.args = append(c.args, "eval", &takeScript)
	} else {
		c.args = append(c.args, "evalsha", &takeSHA)
	}
	c.args = append(c.args, strconv.Itoa(len(c.keys)))
	for i := range c.keys {
		c.args = append(c.args, &c.keys[i])
	}
	return append(c.args, c.blob, c.salt)
}

// A reader takes a reply apart.
type reader struct {
	s  string
	ok bool
}

func (r *reader) byte() byte {
	if len(r.s) < 1 {
		r.ok = false
		return 0
	}
	b := r.s[0]
	r.s = r.s[1:]
	return b
}

func (r *reader) uint16() int { return int(r.byte()) | int(r.byte())<<8 }

func (r *reader) number() int64 {
	if len(r.s) < 8 {
		r.ok = false
		return 0
	}
	s := r.s[:8]
	r.s = r.s[8:]
	bits := uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 |
		uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56
	return int64(math.Float64frombits(bits))
}

// verdict reads the next request's answer into v, which has room for n
// outcomes, and the instants charged into charged if that is not nil.
func (c *call) verdict(r *reader, v *limit.Verdict, n int, charged []limit.Instant) {
	status := r.byte()
	if status == 2 {
		key := ""
		if i := r.uint16(); i >= 1 && i <= len(c.keys) {
			key = c.keys[i-1]
		}
		v.Err = corrupt(key)
		return
	}
	v.Admitted = status == 1
	for i := range n {
		out := &v.Outcomes[i]
		out.Admitted = r.byte() == 1
		out.Remaining = r.number()
		out.Retry = waitOf(r.number())
		out.Reset = waitOf(r.number())
		at := limit.Instant(r.number())
		if charged != nil {
			charged[i] = at
		}
	}
	if !r.ok || status > 2 {
		v.Err = errBadReply
	}
}

func waitOf(micros int64) time.Duration {
	if micros < 0 {
		return limit.Never
	}
	return time.Duration(micros) * time.Microsecond
}

// keyOf returns the Redis key of op.
func (b *Backend) keyOf(op *limit.Op) string {
	if b.shares(op) {
		return sharedPrefix + op.Key.Group[1:]
	}
	return b.ownKey(op.Key)
}

// sharedPrefix is that of logs that other programs use as well.
const sharedPrefix = "rate_limit:"

// shares says whether op's log is one that other programs use as well.
func (b *Backend) shares(op *limit.Op) bool {
	return b.cfg.Layout == ZSet && op.Limit.Algorithm() == limit.SlidingLog && strings.HasPrefix(op.Key.Group, "=")
}

// ownKey puts the group in braces, so that a Cluster keeps it together.
func (b *Backend) ownKey(k limit.Key) string {
	return b.cfg.Prefix + "{" + escapeGroup(k.Group) + "}" + k.Limit
}

// escapeGroup keeps groups from ending the braces, or from being empty, which
// a Cluster would take for no braces at all. Groups of rules never need it.
func escapeGroup(g string) string {
	if g == "" {
		return "%"
	}
	if !strings.ContainsAny(g, "%}") {
		return g
	}
	return groupEscaper.Replace(g)
}

var groupEscaper = strings.NewReplacer("%", "%25", "}", "%7D")

// told returns the instant of a request as the script is told it: negative
// for the server's clock.
func told(at limit.Instant) limit.Instant {
	if at == 0 {
		return -1
	}
	return min(max(at, 0), 1<<52)
}
