package redis

import (
	"strings"

	"github.com/headgate-rls/headgate/limit"
)

// keys says how keys and instants are written in Redis.
type keys struct {
	prefix string
	layout Layout
	step   limit.Instant // precision
}

// keyOf returns the Redis key of op.
func (k *keys) keyOf(op *limit.Op) string { return string(k.appendKey(nil, op)) }

func (k *keys) appendKey(to []byte, op *limit.Op) []byte {
	if k.shares(op) {
		return append(append(to, sharedPrefix...), op.Key.Group[1:]...)
	}
	return k.appendOwnKey(to, op.Key)
}

// shares says whether op's log is one that other programs use as well.
func (k *keys) shares(op *limit.Op) bool {
	return k.layout == ZSet && op.Limit.Is(limit.Logged) && limit.IsRawGroup(op.Key.Group)
}

// ownKey puts the group in braces, so that a Cluster keeps it together.
func (k *keys) ownKey(key limit.Key) string { return string(k.appendOwnKey(nil, key)) }

func (k *keys) appendOwnKey(to []byte, key limit.Key) []byte {
	to = append(append(to, k.prefix...), '{')
	to = append(append(to, escapeGroup(key.Group)...), '}')
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
