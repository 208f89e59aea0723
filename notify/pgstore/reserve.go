package pgstore

import (
	"context"
	"database/sql"
	"slices"
	"time"

	"github.com/headgate-rls/headgate/internal/kit/sqldb"
)

// A Block are units of a user's window that were given out: those from From to before To.
// Nobody else gets them.
type Block struct {
	From, To  int64
	RateLimit int64
	StartUs   int64 // of the window
	Version   int64 // of the configuration
	Rest      time.Duration
	At        time.Time // when Rest was true, by the clock of this process
}

// Reserve gives out units of a user's current window, as many as size makes of its limit,
// or as there are. An empty block says that the window is full.
func (s *Store) Reserve(ctx context.Context, user string, size func(limit int64) int64) (Block, error) {
	release, err := s.turns.take(ctx, user)
	if err != nil {
		return Block{}, unavailable(err)
	}
	defer release()
	ctx, cancel := within(ctx)
	defer cancel()
	at := time.Now()
	l, err := s.lock(ctx, user)
	if err != nil {
		return Block{}, err
	}
	defer l.tx.Rollback()
	b := Block{RateLimit: l.row.RateLimit, StartUs: l.row.StartUs, Version: l.row.Version,
		Rest: l.row.Rest(l.nowUs), At: at}
	l.row, b.From, b.To = l.row.Reserve(size(l.row.RateLimit))
	return b, l.commit(ctx)
}

// A Count is what Redis has counted of a window.
type Count struct {
	UserID  string
	Count   int64
	StartUs int64
	Version int64
}

// syncText locks the rows that no other session has locked: while it waited for one, it would keep all the others
// locked. It raises counts of the same window and configuration, and returns those whose configuration has changed,
// and those whose row is locked.
const syncText = `WITH given AS (
	SELECT * FROM unnest($1::text[], $2::bigint[], $3::timestamptz[], $4::bigint[]) AS g(user_id, count, start, version)
), held AS (
	SELECT r.user_id, r.row_version, r.last_refresh_time FROM rate_limit_store r
	WHERE r.user_id = ANY($1::text[]) ORDER BY r.user_id FOR UPDATE SKIP LOCKED
), raised AS (
	UPDATE rate_limit_store r SET current_count = GREATEST(r.current_count, g.count)
	FROM given g JOIN held h ON h.user_id = g.user_id
	WHERE r.user_id = g.user_id AND h.row_version = g.version AND h.last_refresh_time = g.start
	  AND r.current_count < g.count
)
SELECT g.user_id, g.version, h.user_id IS NULL AND EXISTS (SELECT FROM rate_limit_store r WHERE r.user_id = g.user_id)
FROM given g LEFT JOIN held h ON h.user_id = g.user_id
WHERE h.user_id IS NULL OR h.row_version > g.version`

// Sync raises current_count to what Redis has counted, where the window is still the same.
// It never lowers a count. It calls stale for users whose configuration has changed since
// the version, or is gone, and held for counts that it cannot write because others hold their rows.
func (s *Store) Sync(ctx context.Context, counts []Count, stale func(user string, version int64),
	held func(Count)) error {
	var users []string
	var numbers, versions []int64
	var starts []time.Time
	for _, c := range counts {
		users, numbers, versions = append(users, c.UserID), append(numbers, c.Count), append(versions, c.Version)
		starts = append(starts, time.UnixMicro(c.StartUs).UTC())
	}
	q := sqldb.Query{Text: syncText, Args: []any{users, numbers, starts, versions}}
	return unavailable(s.db.Rows(ctx, s.db.Write, "follow the counts of Redis", q, func(rows *sql.Rows) error {
		var user string
		var version int64
		var isHeld bool
		if err := rows.Scan(&user, &version, &isHeld); err != nil {
			return err
		}
		if !isHeld {
			stale(user, version)
		} else if i := slices.Index(users, user); i >= 0 {
			held(counts[i])
		}
		return nil
	}))
}

// Version returns the version of a user's configuration; 0 means none.
func (s *Store) Version(ctx context.Context, user string) (version int64, err error) {
	q := sqldb.Query{Text: "SELECT row_version FROM rate_limit_store WHERE user_id = $1", Args: []any{user}}
	_, err = s.db.Row(ctx, s.db.Read, "read a user's version", q, &version)
	return version, unavailable(err)
}
