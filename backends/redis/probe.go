package redis

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/limit"
)

// Before the first request is decided, the servers are asked whether they can keep limits: whether they run scripts
// that have what headgate's need, and whether one address is one server for all keys. A proxy that spreads keys over
// servers sends a script to the server of its first key, which then counts on other keys there. So a script writes some
// keys, and each is then deleted alone: if some are not found, keys are apart. What has been found is believed until
// new connections have been made: then the next Ping asks again.

// A probed is what was found.
type probed struct {
	dials int64 // the connections that had been made, or tried
	err   error // why no request can be decided; nil if they can
}

// probeKeys is how many keys a script writes. That two servers share them evenly and none goes to the second one, has
// a probability of 1 to 2^63; if the second one gets a tenth of all keys, 1 to 800.
const probeKeys = 64

// probeScript writes the keys. It returns whether there is struct, and why a key cannot be written.
const probeScript = `
local has = pcall(function() return struct.pack('<d', 1) end) and 1 or 0
for i = 1, #KEYS do
  local done = redis.pcall('SET', KEYS[i], '1', 'PX', '10000')
  if type(done) == 'table' and done.err then return {has, done.err} end
end
return {has, ''}`

// An ability is what the servers must be able to do, in the order in which they are asked.
type ability int

const (
	answersCalls ability = iota
	letsIn
	runsScripts
	hasStruct
	takesWrites
	isOne
	keepsKeys
)

// abilities names them for operators.
var abilities = [...]string{
	answersCalls: "connection",
	letsIn:       "login",
	runsScripts:  "EVAL",
	hasStruct:    "struct in Lua",
	takesWrites:  "writes",
	isOne:        "one server for all keys",
	keepsKeys:    "memory policy",
}

// An unable is an error that says which ability is missing.
type unable struct {
	ability
	error
}

func (e *unable) Unwrap() error { return e.error }

// misfit is the error of servers that can never keep limits as they are.
func misfit(what ability, text string) error {
	return &unable{what, fmt.Errorf("redis: %w: %w: %s", backends.ErrMisconfigured, backends.ErrNotApplied, text)}
}

// The sentences about what was found.
const (
	lacksStruct = "it has no struct in Lua, which the scripts need: it is no Redis, but an imitation. Use Redis 6.0 or " +
		"later, or Valkey"
	keysApart = "keys that one script has written are on several servers: a proxy that spreads keys, such as Envoy's " +
		"redis_proxy or twemproxy, is behind this address; use layout=envoy (or REDIS_LAYOUT=envoy), or the address of " +
		"one Redis"
	clusterNode = "it is a node of a Cluster: use redis+cluster://"
)

// ready probes the servers unless that has been done. It returns why no request can be decided.
func (b *Backend) ready(ctx context.Context) error {
	if p := b.probed.Load(); p != nil {
		return p.err
	}
	return b.examine(ctx)
}

// examine probes the servers unless it is known what they are on the connections that there are. Only one call probes
// at a time. If a reply refuses the probe, requests are sent all the same, to be refused or not: of a full Redis some
// are decided.
func (b *Backend) examine(ctx context.Context) error {
	select {
	case b.probing <- struct{}{}:
		defer func() { <-b.probing }()
	case <-ctx.Done():
		return mapped(ctx.Err(), false)
	}
	if p := b.probed.Load(); p != nil && p.err == nil && p.dials == b.dials.Load() {
		return nil
	}
	apart, err := b.probe(ctx)
	found := &probed{dials: b.dials.Load()}
	switch what := missing(err); {
	case err == nil:
	case what == hasStruct, what == isOne:
		found.err = err
	case errors.Is(err, backends.ErrDeclined) || errors.Is(err, backends.ErrMisconfigured):
		found.dials, apart = -1, b.apart.Load() // the next Ping asks again
	default:
		return err
	}
	b.believe(found, apart)
	return found.err
}

// believe keeps what was found.
func (b *Backend) believe(found *probed, apart bool) {
	b.apart.Store(apart)
	if apart && found.err == nil && found.dials >= 0 && b.probed.Load() == nil {
		b.log.Info("a proxy spreads keys over several Redis: each key is decided by itself", "redis", b.cfg)
	}
	if w, ok := b.counts.(*windows); ok && b.greeting.plain.Load() {
		w.refused.Store(true) // it does not know TIME either
	}
	b.probed.Store(found)
}

// probe asks for the abilities, up to isOne. Its error is an unable. With layout=envoy keys may be apart.
func (b *Backend) probe(ctx context.Context) (apart bool, err error) {
	keys := make([]string, 1)
	if b.cfg.Mode == Standalone {
		keys = make([]string, probeKeys)
	}
	for again := range 2 { // a key might have been evicted
		name := strconv.FormatUint(rand.Uint64(), 36)
		for i := range keys {
			keys[i] = b.ownKey(limit.Key{Group: "probe/" + strconv.Itoa(i), Limit: name})
		}
		err = b.writeAll(ctx, keys)
		if b.windows && missing(err) == isOne {
			return true, b.writeEach(ctx, keys)
		}
		if err != nil || len(keys) == 1 {
			return false, err
		}
		apart, err = b.areApart(ctx, keys)
		if err != nil || !apart {
			return false, err
		}
		if again > 0 && !b.windows {
			err = misfit(isOne, keysApart)
		}
	}
	return true, err
}

// writeAll writes keys by one script.
func (b *Backend) writeAll(ctx context.Context, keys []string) error {
	for try := 1; ; try++ {
		cmd := b.client.Eval(ctx, probeScript, keys)
		if cmd.Err() == nil || try == tries {
			return judge(cmd)
		}
		if rem, _ := mapError(cmd.Err(), false); rem != tryLater || b.pause(ctx, try) != nil {
			return judge(cmd)
		}
	}
}

// judge says which ability is missing by the reply to the script.
func judge(cmd *redis.Cmd) error {
	reply, err := cmd.Slice()
	if err != nil {
		return lacking(err)
	}
	if len(reply) != 2 {
		return &unable{runsScripts, errBadReply}
	}
	wrong, _ := reply[1].(string)
	switch {
	case reply[0] != int64(1):
		return misfit(hasStruct, lacksStruct)
	case wrong != "":
		return &unable{takesWrites, mapped(writeError(wrong), false)}
	}
	return nil
}

// A writeError is a reply of Redis within a script.
type writeError string

func (e writeError) Error() string { return string(e) }
func (writeError) RedisError()     {}

// lackingBy says which ability is missing by how the reply to a script begins.
var lackingBy = []struct {
	code string
	ability
}{
	{"NOAUTH", letsIn}, {"ERR Protocol error: unauthenticated", letsIn}, {"WRONGPASS", letsIn},
	{"ERR AUTH", letsIn}, {"ERR invalid password", letsIn}, {"ERR Client sent AUTH", letsIn},
	{"READONLY", takesWrites}, {"OOM", takesWrites}, {"MISCONF", takesWrites}, {"NOREPLICAS", takesWrites},
	{"CROSSSLOT", isOne}, {"ERR eval/evalsha command keys must be in same slot", isOne}, {"MOVED", isOne},
}

// lacking returns the error of a script that was not run. Nothing was counted, whatever has happened.
func lacking(err error) error {
	what, why := answersCalls, mapped(err, false)
	if !errors.Is(why, backends.ErrNotApplied) {
		why = fmt.Errorf("%w: %w", why, backends.ErrNotApplied)
	}
	var reply redis.Error
	if errors.Is(err, errPlain) {
		what = letsIn
	} else if errors.As(err, &reply) {
		what = runsScripts
		for _, l := range lackingBy {
			if strings.HasPrefix(reply.Error(), l.code) {
				what = l.ability
			}
		}
	}
	return &unable{what, why}
}

// missing returns the ability of an unable, and -1 of no error.
func missing(err error) ability {
	if e := new(unable); errors.As(err, &e) {
		return e.ability
	}
	return -1
}

// writeEach writes each key by a script of its own. A proxy in front of a Cluster answers all of these calls, and a
// node of one those for its slots.
func (b *Backend) writeEach(ctx context.Context, keys []string) error {
	pipe := b.client.Pipeline()
	cmds := make([]*redis.Cmd, len(keys))
	for i, key := range keys {
		cmds[i] = pipe.Eval(ctx, probeScript, []string{key})
	}
	_, _ = pipe.Exec(ctx) // each command has its error
	for _, cmd := range cmds {
		if err := judge(cmd); missing(err) == isOne {
			return misfit(isOne, clusterNode)
		} else if err != nil {
			return err
		}
	}
	return nil
}

// areApart deletes keys, each in a command of its own, and reports whether some of them are missing.
func (b *Backend) areApart(ctx context.Context, keys []string) (bool, error) {
	pipe := b.client.Pipeline()
	for _, key := range keys {
		pipe.Unlink(ctx, key)
	}
	cmds, _ := pipe.Exec(ctx) // each command has its error
	found := 0
	for _, cmd := range cmds {
		n, err := cmd.(*redis.IntCmd).Result()
		if err != nil {
			return false, lacking(err)
		}
		found += int(n)
	}
	if found == 0 {
		return false, &unable{takesWrites, errKeysGone}
	}
	return found < len(keys), nil
}

// errKeysGone says nothing of proxies: the first key is on the server that has run the script. Somebody has emptied it,
// or another server has answered.
var errKeysGone = fmt.Errorf("redis: %w: %w: the keys that a script has just written are gone", backends.ErrDeclined,
	backends.ErrNotApplied)

// Probe implements [backends.Prober].
func (b *Backend) Probe(ctx context.Context) (all []backends.Ability) {
	apart, err := b.probe(ctx)
	last := isOne
	if err != nil {
		last = missing(err)
	}
	for a := range last + 1 {
		all = append(all, backends.Ability{Name: abilities[a]})
	}
	if err != nil {
		all[last].Err = b.explained(err)
		return all
	}
	if b.greeting.plain.Load() {
		all[letsIn].Note = "it does not know HELLO, as twemproxy: the login is by AUTH"
	}
	if apart {
		all[isOne].Note = "keys are on several servers, and layout=envoy needs each of them alone"
	}
	return append(all, b.policies(ctx), backends.Ability{Name: "decisions", Err: b.Ping(ctx)})
}

// policies asks the servers whether they keep keys.
func (b *Backend) policies(ctx context.Context) backends.Ability {
	a := backends.Ability{Name: abilities[keepsKeys]}
	if b.greeting.plain.Load() {
		a.Note = "not known: INFO is no command of this proxy"
		return a
	}
	found, _, err := askVitals(ctx, b.client)
	if err != nil {
		a.Note = "not known: " + err.Error()
	}
	var warnings []string
	for addr, v := range found {
		for _, w := range v.warnings {
			warnings = append(warnings, "Redis at "+addr+": "+w)
		}
	}
	a.Warning = strings.Join(warnings, "; ")
	return a
}
