package redis

import (
	"cmp"
	"context"
	"fmt"
	"sort"
	"strconv"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/limit"
)

var _ backends.Lister = (*Backend)(nil)

// listScans is how many SCANs a List does at most. Each looks at about as many keys of the server
// as List is asked for, also at keys of other programs.
const listScans = 16

// List implements [backends.Lister]: master by master, in the order of SCAN. Where it is to go on is
// SCAN's cursor and the address of the master.
func (b *Backend) List(ctx context.Context, after string, n int) (keys []limit.Key, next string, err error) {
	if b.windows {
		return nil, "", fmt.Errorf("%w: backend %s cannot list its keys: their names do not tell where a domain or "+
			"an entry ends", backends.ErrUnsupported, b.caps.Title())
	}
	number, addr, _ := strings.Cut(after, "@")
	cursor, err := strconv.ParseUint(cmp.Or(number, "0"), 10, 64)
	if err != nil {
		return nil, "", fmt.Errorf("%w: nothing was listed up to %.20q", backends.ErrInvalid, after)
	}
	masters, err := b.masters(ctx)
	for i := 0; err == nil && i < len(masters); i++ {
		m := masters[i]
		switch at := m.Options().Addr; {
		case b.cluster != nil && at < addr:
			continue
		case b.cluster != nil && at > addr && after != "" && addr != "":
			cursor = 0 // the master that was asked before has gone
		}
		addr = m.Options().Addr
		for range listScans {
			var found []string
			if found, cursor, err = m.Scan(ctx, cursor, globEscaper.Replace(b.prefix)+"{*", int64(n)).Result(); err != nil {
				break
			}
			for _, key := range found {
				if k, ok := b.parse(key); ok {
					keys = append(keys, k)
				}
			}
			if cursor == 0 || len(keys) >= n {
				break
			}
		}
		switch {
		case err != nil && i+1 < len(masters) && !strings.HasPrefix(err.Error(), "NOPERM"):
			return keys, "0@" + masters[i+1].Options().Addr, mapped(err, false)
		case err != nil:
		case cursor != 0:
			return keys, fmt.Sprintf("%d@%s", cursor, addr), nil
		case i+1 < len(masters):
			return keys, "0@" + masters[i+1].Options().Addr, nil
		}
	}
	switch {
	case err == nil:
		return keys, "", nil
	case strings.HasPrefix(err.Error(), "NOPERM"):
		return nil, "", fmt.Errorf("%w: redis: its user may not list keys: %w", backends.ErrUnsupported, err)
	}
	return nil, "", mapped(err, false)
}

// masters are all that there are, in the order of their addresses.
func (b *Backend) masters(ctx context.Context) (list []*redis.Client, err error) {
	var mu sync.Mutex
	err = eachMaster(ctx, b.client, func(_ context.Context, node *redis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		list = append(list, node)
		return nil
	})
	sort.Slice(list, func(i, j int) bool { return list[i].Options().Addr < list[j].Options().Addr })
	return list, err
}

// globEscaper escapes a text for a pattern of SCAN.
var globEscaper = strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`, "]", `\]`)

// parse takes apart what appendOwnKey has made.
func (k *keys) parse(key string) (limit.Key, bool) {
	rest, ok := strings.CutPrefix(key, k.prefix+"{")
	group, part, closed := strings.Cut(rest, "}")
	if !ok || !closed || group == "" {
		return limit.Key{}, false
	}
	if group == "%" {
		group = ""
	}
	if strings.HasPrefix(group, "+") {
		second, limitPart, closed := strings.Cut(part, "}")
		if !closed {
			return limit.Key{}, false
		}
		group, part = group+second, limitPart
	}
	return limit.Key{Group: groupUnescaper.Replace(group), Limit: part}, true
}

var groupUnescaper = strings.NewReplacer("%25", "%", "%7D", "}")
