package sqlstore

import (
	"context"
	"errors"

	"github.com/headgate-rls/headgate/internal/kit/sqldb"
	"github.com/headgate-rls/headgate/slots"
)

// Procedure implements slots.Store.
func (db *DB) Procedure() slots.Procedure {
	if db.dialect.assign == nil {
		return nil
	}
	return procedure{db}
}

// HadProcedure reports whether the database had a procedure in earlier versions, and has none now.
func (db *DB) HadProcedure() bool { return db.dialect.Dialect == sqldb.Postgres }

// procedure implements slots.Procedure.
type procedure struct{ db *DB }

// What procedures answer beside the values of slots.Status: the version of the config is
// not the active one; or another session holds the window, or windows that seemed to have room
// had none, which the engine tx deals with.
const (
	superseded slots.Status = 3
	held       slots.Status = 4
)

// Call implements slots.Procedure.
func (p procedure) Call(ctx context.Context, s *slots.Search) (slots.Found, error) {
	const op = "assign a slot by procedure"
	if len(s.Asks) != 1 {
		return slots.Found{}, &slots.StoreError{Kind: slots.Failed, Op: op,
			Err: errors.New("a procedure places one event at a time")}
	}
	found := slots.Found{Answers: make([]slots.Answer, 1), FirstCount: -1}
	a, err := p.db.dialect.assign(ctx, p.db.sql.Write, s)
	switch {
	case err != nil:
		return found, p.db.fail(ctx, op, err)
	case a.status == superseded:
		return found, &slots.StoreError{Kind: slots.Superseded, Op: op, Err: errors.New("the config has a newer version")}
	case a.status == held:
		return found, &slots.StoreError{Kind: slots.Held, Op: op, Err: errors.New("other sessions hold or fill the windows")}
	}
	found = slots.Found{FirstCount: a.firstCount, Exhausted: a.exhausted, Windows: int(a.windows),
		Contended: int(a.contended)}
	found.Answers = []slots.Answer{{Status: a.status, Slot: a.slot}}
	if a.status == slots.Unplaced {
		found.Answers[0].Slot = slots.Slot{}
	}
	if a.lowMs > s.FromMs {
		found.Full = []slots.Span{{FromMs: s.FromMs, ToMs: a.lowMs}}
	}
	return found, nil
}
