package redis

import (
	crand "crypto/rand"
	"encoding/binary"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/headgate-rls/headgate/backends/redis/script"
	"github.com/headgate-rls/headgate/limit"
)

// Layout says how counters are written.
type Layout uint8

const (
	// List stores a log compactly and to the microsecond.
	List Layout = iota
	// ZSet stores a log as a sorted set of one member per unit, scored in
	// milliseconds, so that other programs can share the counters.
	ZSet
	// Envoy has the keys and whole numbers of envoyproxy/ratelimit, so that both count in the
	// same counters. It has fixed windows only.
	Envoy
)

// A layoutRow is all that sets a layout apart from the others, beside what it promises.
type layoutRow struct {
	name   string
	common *script.Script // decides windows and buckets; nil if there is no such script
	full   *script.Script // decides everything
	flag   float64        // for the scripts
	// shares says whether other programs use the counter of a key as well, and shared appends
	// what they call it. l is the limit; nil stands for one that is shared if any is.
	shares func(key *limit.Key, l *limit.Limit) bool
	shared func(k *keys, to []byte, group string) []byte
	// salt returns what the script gets beside the slice.
	salt func(k *keys, to []byte) []byte
	// windows: each window has a key of its own, which ends with the second of its start.
	windows bool
	perUnit bool // a unit of a log is a member of a set
	ping    *limit.Limit
}

var layouts = [...]layoutRow{
	List: {name: "list", common: script.Common, full: script.Full, ping: pingBucket},
	ZSet: {name: "zset", common: script.Common, full: script.Full, flag: flagZSet, shares: sharesLog, shared: sharedLog,
		salt: uniqueSalt, perUnit: true, ping: pingBucket},
	Envoy: {name: "envoy", full: script.Envoy, shares: sharesCounter, shared: sharedCounter, salt: jitter, windows: true,
		ping: pingWindow},
}

// A ping's limit fills up, or counts down an empty counter: it writes, so it finds a server
// that is loading, read-only, out of memory or lacks permissions.
var (
	pingBucket = limit.MustNew(limit.Spec{Algorithm: limit.TokenBucket, Max: 1, Window: time.Second})
	pingWindow = limit.MustNew(limit.Spec{Algorithm: limit.FixedWindow, Max: 1, Window: time.Second})
)

// sharedPrefix is that of logs that other programs use as well.
const sharedPrefix = "rate_limit:"

// sharesLog: all limits of a raw group are one log.
func sharesLog(key *limit.Key, l *limit.Limit) bool {
	return limit.IsRawGroup(key.Group) && (l == nil || l.Is(limit.Logged))
}

func sharedLog(_ *keys, to []byte, group string) []byte {
	return append(append(to, sharedPrefix...), group[1:]...)
}

// uniqueSalt makes the members of a slice unique.
func uniqueSalt(k *keys, to []byte) []byte {
	to = append(to, k.saltStart[:]...)
	return binary.LittleEndian.AppendUint64(to, k.salts.Add(1))[:11]
}

// sharesCounter: a text group is what envoyproxy/ratelimit calls a counter, apart from the
// prefix before it and the window's start behind it.
func sharesCounter(key *limit.Key, _ *limit.Limit) bool {
	_, ok := limit.TextOf(key.Group)
	return ok
}

func sharedCounter(k *keys, to []byte, group string) []byte {
	text, _ := limit.TextOf(group)
	return append(append(to, k.cachePrefix...), text...)
}

// jitter returns a number of seconds below the longest jitter.
func jitter(k *keys, to []byte) []byte {
	n := 0
	if k.jitter > 0 {
		n = rand.IntN(k.jitter)
	}
	return strconv.AppendInt(to, int64(n), 10)
}

// keys says how keys and instants are written in Redis.
type keys struct {
	*layoutRow
	prefix      string
	cachePrefix string // of keys shared with envoyproxy/ratelimit
	jitter      int    // see Config.ExpirationJitter
	step        limit.Instant
	// apart: behind one address are several servers, each with some of the keys. It is true until it is known.
	apart atomic.Bool

	saltStart [6]byte
	salts     atomic.Uint64
}

// init fills k in from c, for instants of a precision.
func (k *keys) init(c *Config, precision time.Duration) error {
	k.layoutRow = &layouts[c.Layout]
	k.prefix, k.cachePrefix, k.jitter = c.Prefix, c.CacheKeyPrefix, c.ExpirationJitter
	k.step = limit.Instant(precision.Microseconds())
	k.apart.Store(k.windows && c.Mode == Standalone)
	_, err := crand.Read(k.saltStart[:])
	return err
}

// keyOf returns the Redis key of op at an instant.
func (k *keys) keyOf(op *limit.Op, at limit.Instant) string { return string(k.appendKey(nil, op, at)) }

func (k *keys) appendKey(to []byte, op *limit.Op, at limit.Instant) []byte {
	to = k.appendBase(to, &op.Key, op.Limit)
	if k.windows {
		at -= at % limit.Instant(op.Limit.Window().Microseconds())
		to = strconv.AppendInt(to, int64(at)/1e6, 10)
	}
	return to
}

// appendBase appends a key but for the start of a window. l is as for shares.
func (k *keys) appendBase(to []byte, key *limit.Key, l *limit.Limit) []byte {
	if k.isShared(key, l) {
		return k.shared(k, to, key.Group)
	}
	to = k.appendOwnKey(to, *key)
	if k.windows {
		to = append(to, '_')
	}
	return to
}

func (k *keys) isShared(key *limit.Key, l *limit.Limit) bool {
	return k.shares != nil && k.shares(key, l)
}

// identity returns what tells the key of op at an instant from others.
func (k *keys) identity(op *limit.Op, at limit.Instant) limit.Key {
	switch {
	case k.windows:
		return limit.Key{Group: k.keyOf(op, at)}
	case k.isShared(&op.Key, op.Limit):
		return limit.Key{Group: op.Key.Group} // all limits of the group are one log
	}
	return op.Key
}

// ownKey puts the group, or the half of it that names its partition, in braces, so that a Cluster keeps it together.
// The other half stands behind, and ends with a brace, too.
func (k *keys) ownKey(key limit.Key) string { return string(k.appendOwnKey(nil, key)) }

func (k *keys) appendOwnKey(to []byte, key limit.Key) []byte {
	partition, rest := limit.Partition(key.Group)
	to = append(append(to, k.prefix...), '{')
	to = append(append(to, escapeGroup(partition)...), '}')
	if rest != "" {
		to = append(append(to, escapeGroup(rest)...), '}')
	}
	return append(to, key.Limit...)
}

// escapeGroup keeps groups from ending the braces, or from being empty, which
// a Cluster would take for no braces at all. Groups of rules never need it.
func escapeGroup(g string) string {
	if g == "" {
		return "%"
	}
	if strings.IndexByte(g, '%') < 0 && strings.IndexByte(g, '}') < 0 {
		return g
	}
	return groupEscaper.Replace(g)
}

var groupEscaper = strings.NewReplacer("%", "%25", "}", "%7D")

// told returns the instant of a request in the script's form, in whole
// steps: negative for the server's clock.
func (k *keys) told(at limit.Instant) limit.Instant {
	if at == 0 {
		return -1
	}
	at = min(max(at, 0), limit.MaxInstant)
	return at - at%k.step
}

// whole returns the instant of a verdict, in whole steps.
func (k *keys) whole(at limit.Instant) limit.Instant { return at - mod(at, k.step) }

func mod(at, step limit.Instant) limit.Instant { return (at%step + step) % step }
