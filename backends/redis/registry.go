package redis

import (
	"context"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/limit"
)

// A registry keeps a table as one key per row, which expires by itself, and a
// sorted set that lists the rows by the millisecond at which they expire. All
// keys of a table are in one slot of a Cluster. It needs no command that
// the scripts do not.
type registry struct {
	*servers
	*keys
}

// Registry implements [backends.Registrar].
func (b *Backend) Registry() backends.Registry { return registry{b.servers, &b.keys} }

const (
	rowsInCall = 256 // Redis does nothing else while it stores them
	rowsInRead = 512
)

// claimScript: KEYS the claim; ARGV its value and life in ms.
var claimScript = redis.NewScript(`
local there = redis.call('GET', KEYS[1])
if there and there ~= ARGV[1] then return there end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return ARGV[1]`)

// putScript: KEYS the table's list, then its rows, unless they are apart; ARGV their life in ms, the
// most rows of a table, and for each row its key and value. Returns how many
// had no room.
var putScript = redis.NewScript(`
local list, life, most = KEYS[1], tonumber(ARGV[1]), tonumber(ARGV[2])
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZREMRANGEBYSCORE', list, '-inf', string.format('%.0f', now))
local n, left, ends = redis.call('ZCARD', list), 0, string.format('%.0f', now + life)
for i = 2, #ARGV / 2 do
  local key = ARGV[2 * i - 1]
  local new = not redis.call('ZSCORE', list, key)
  if new and n >= most then
    left = left + 1
  else
    if new then n = n + 1 end
    if KEYS[i] then redis.call('SET', KEYS[i], ARGV[2 * i], 'PX', ARGV[1]) end
    redis.call('ZADD', list, ends, key)
  end
end
if redis.call('PTTL', list) < life then redis.call('PEXPIRE', list, ARGV[1]) end
return left`)

func (r registry) rowKey(table, key string) string {
	return r.ownKey(limit.Key{Group: "registry/" + table, Limit: key})
}

// do runs a script within the configured timeout.
func (r registry) do(ctx context.Context, script *redis.Script, keys []string, args ...any) *redis.Cmd {
	ctx, cancel := r.bounded(ctx)
	defer cancel()
	return script.Run(ctx, r.client, keys, args...)
}

// Claim implements [backends.Registry].
func (r registry) Claim(ctx context.Context, name, value string, ttl time.Duration) (string, error) {
	if err := backends.CheckRow(name, value, ttl); err != nil {
		return "", err
	}
	there, err := r.do(ctx, claimScript, []string{r.rowKey("claims", name)}, value, ttl.Milliseconds()).Text()
	return there, mapped(err, true)
}

// Put implements [backends.Registry].
func (r registry) Put(ctx context.Context, table string, rows []backends.Row, ttl time.Duration) (left int, err error) {
	for _, row := range rows {
		if err := backends.CheckRow(row.Key, row.Value, ttl); err != nil {
			return 0, err
		}
	}
	for some := range slices.Chunk(rows, rowsInCall) {
		keys, args := []string{r.rowKey(table, "")}, []any{ttl.Milliseconds(), backends.MaxRows}
		for _, row := range some {
			keys, args = append(keys, r.rowKey(table, row.Key)), append(args, row.Key, row.Value)
		}
		if r.apart.Load() { // the script lists the rows
			if err := r.putEach(ctx, keys[1:], some, ttl); err != nil {
				return left, mapped(err, true)
			}
			keys = keys[:1]
		}
		more, err := r.do(ctx, putScript, keys, args...).Int()
		if err != nil {
			return left, mapped(err, true)
		}
		left += more
	}
	return left, nil
}

// putEach stores each row by a command of its own.
func (r registry) putEach(ctx context.Context, keys []string, rows []backends.Row, ttl time.Duration) error {
	ctx, cancel := r.bounded(ctx)
	defer cancel()
	var cmds []redis.Cmder
	for i, row := range rows {
		cmds = append(cmds, redis.NewStatusCmd(ctx, "set", keys[i], row.Value, "px", ttl.Milliseconds()))
	}
	return pipelined(ctx, r.client, cmds)
}

// List implements [backends.Registry].
func (r registry) List(ctx context.Context, table string) ([]backends.Row, error) {
	first, cancel := r.bounded(ctx)
	defer cancel()
	keys, err := r.client.ZRange(first, r.rowKey(table, ""), 0, -1).Result()
	if err != nil {
		return nil, mapped(err, true)
	}
	list := make([]backends.Row, 0, len(keys))
	for some := range slices.Chunk(keys, rowsInRead) {
		if list, err = r.read(ctx, list, table, some); err != nil {
			return nil, mapped(err, true)
		}
	}
	return list, nil
}

// read appends the rows with these keys that have not expired.
func (r registry) read(ctx context.Context, list []backends.Row, table string, keys []string) ([]backends.Row, error) {
	ctx, cancel := r.bounded(ctx)
	defer cancel()
	names := make([]string, len(keys))
	for i, key := range keys {
		names[i] = r.rowKey(table, key)
	}
	values, err := r.client.MGet(ctx, names...).Result()
	if err != nil {
		return list, err
	}
	for i, v := range values {
		if text, ok := v.(string); ok {
			list = append(list, backends.Row{Key: keys[i], Value: text})
		}
	}
	return list, nil
}

// Drop implements [backends.Registry].
func (r registry) Drop(ctx context.Context, table string, keys []string) error {
	for some := range slices.Chunk(keys, rowsInCall) {
		if err := r.drop(ctx, table, some); err != nil {
			return mapped(err, true)
		}
	}
	return nil
}

func (r registry) drop(ctx context.Context, table string, keys []string) error {
	ctx, cancel := r.bounded(ctx)
	defer cancel()
	names, members := make([]string, len(keys)), make([]any, len(keys))
	for i, key := range keys {
		names[i], members[i] = r.rowKey(table, key), key
	}
	pipe := r.client.Pipeline()
	pipe.ZRem(ctx, r.rowKey(table, ""), members...)
	pipe.Unlink(ctx, names...)
	_, err := pipe.Exec(ctx)
	return err
}
