package dynamodb

import (
	"context"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/limit"
)

// A registry keeps its tables in the table of counters: a partition for each, and an item for each
// row. What has ended is ended by this process's clock.
type registry struct{ *Backend }

// Registry implements [backends.Registrar].
func (b *Backend) Registry() backends.Registry { return registry{b} }

// instant is the present one. Only the registry has need of it.
func (r registry) instant() limit.Instant { return limit.InstantOf(r.conf.Now()) }

// Claim implements [backends.Registry].
func (r registry) Claim(ctx context.Context, name, value string, ttl time.Duration) (there string, err error) {
	if err := backends.CheckRow(name, value, ttl); err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, r.conf.Timeout)
	defer cancel()
	inDoubt := false
	for try := 1; ; try++ {
		now := r.instant()
		other, o, err := r.client.claim(ctx, primary{claimItems + name, "-"}, value, now, now.Add(ttl))
		switch o {
		case done:
			return value, nil
		case changed:
			return other, nil
		}
		inDoubt = inDoubt || o == lost
		if r.conf.last(o, try) || !pause(ctx, try) {
			return "", failed(err, inDoubt)
		}
		r.retries.Add(1)
	}
}

// Put implements [backends.Registry]. Replicas that put new rows into a table at the same time do not
// see each other's: together they may put a few too many.
func (r registry) Put(ctx context.Context, table string, rows []backends.Row,
	life time.Duration) (left int, err error) {
	for _, row := range rows {
		if err := backends.CheckRow(row.Key, row.Value, life); err != nil {
			return 0, err
		}
	}
	old, err := r.List(ctx, table)
	if err != nil {
		return 0, err
	}
	there := map[string]bool{}
	for _, row := range old {
		there[row.Key] = true
	}
	ends := r.instant().Add(life)
	at := map[string]int{}
	var all []types.WriteRequest
	for _, row := range rows {
		put := types.WriteRequest{PutRequest: &types.PutRequest{Item: attributes{
			attrKey: binaryValue(rowItems + table), attrRow: binaryValue(row.Key), attrState: binaryValue(row.Value),
			attrEnds: integer(int64(ends)), attrTTL: ttl(ends),
		}}}
		i, again := at[row.Key]
		switch {
		case again:
			all[i] = put
		case !there[row.Key] && len(there) >= backends.MaxRows:
			left++
		default:
			there[row.Key], at[row.Key] = true, len(all)
			all = append(all, put)
		}
	}
	return left, r.writeEach(ctx, all)
}

// List implements [backends.Registry]. What it has read already when it fails is read again the next time.
func (r registry) List(ctx context.Context, table string) (rows []backends.Row, err error) {
	ctx, cancel := context.WithTimeout(ctx, listTime)
	defer cancel()
	for try := 1; ; try++ {
		now := r.instant()
		rows = rows[:0]
		o, err := r.client.rows(ctx, rowItems+table, func(a attributes) {
			if integerOf(a, attrEnds) > int64(now) {
				rows = append(rows, backends.Row{Key: string(bytesOf(a, attrRow)), Value: string(bytesOf(a, attrState))})
			}
		})
		if err == nil {
			return rows, nil
		}
		if r.conf.last(o, try) || !pause(ctx, try) {
			return nil, failed(err, false)
		}
		r.retries.Add(1)
	}
}

// listTime bounds the reading of a table, which is several calls where it is long.
const listTime = 5 * time.Second

// Drop implements [backends.Registry].
func (r registry) Drop(ctx context.Context, table string, keys []string) error {
	names := make([]primary, len(keys))
	for i, k := range keys {
		names[i] = primary{rowItems + table, k}
	}
	return r.drop(ctx, names)
}
