package sqlstore

import (
	"context"
	"database/sql"
	"errors"

	"github.com/headgate-rls/headgate/slots"
)

// Procedure implements slots.Store.
func (db *DB) Procedure() slots.Procedure {
	if db.dialect.assign == nil {
		return nil
	}
	return procedure{db}
}

// procedure implements slots.Procedure.
type procedure struct{ db *DB }

// Call implements slots.Procedure.
func (p procedure) Call(ctx context.Context, s *slots.Search) (slots.Found, error) {
	const op = "assign a slot by procedure"
	if len(s.Asks) != 1 {
		return slots.Found{}, &slots.StoreError{Kind: slots.Failed, Op: op, Err: errors.New("a procedure places one event at a time")}
	}
	found := slots.Found{Answers: make([]slots.Answer, 1), FirstCount: -1, LowMs: s.FromMs, FrontierMs: s.FrontierMs}
	a, err := p.db.dialect.assign(ctx, p.db.pools.write, s)
	if err != nil {
		return found, p.db.fail(ctx, op, err)
	}
	return slots.Found{
		Answers:     []slots.Answer{{Status: a.status, Slot: a.slot}},
		FirstCount:  a.firstCount,
		LowMs:       a.lowMs,
		FrontierMs:  a.frontierMs,
		Held:        a.held,
		Exhausted:   a.exhausted,
		Windows:     int(a.windows),
		Contended:   int(a.contended),
		Provisioned: a.provisioned,
	}, nil
}

// callArgs are the arguments that procedures take, in their order. requested is
// how the dialect binds the instant that the event asks for.
func callArgs(s *slots.Search, requested any) []any {
	a := &s.Asks[0]
	return []any{
		s.Scope, s.SizeMs, s.ConfigID, s.Max, s.Stratified,
		s.FirstMs, s.FirstKnown,
		s.BaseMs, s.FromMs, s.Direct, s.EndMs,
		int64(s.Chunk), int64(s.Chunks), s.GridMs(), s.FrontierMs, s.Wait,
		a.EventID, a.SlotID, requested, a.ElapsedMs, a.FirstMax, int64(a.Bits),
	}
}

// scanAssigned reads a procedure's answer where it is one row.
func scanAssigned(row *sql.Row, a *slots.Ask, micros func(any) (int64, error)) (*assigned, error) {
	var r assigned
	var id, scope, config sql.NullString
	var size sql.NullInt64
	var requestedUs, windowUs, scheduledUs, createdUs int64
	var none bool
	into := func(us *int64) instant { return instant{us: us, null: &none, read: micros} }
	err := row.Scan(&r.status, &id, &scope, &size, into(&requestedUs), into(&windowUs), into(&scheduledUs), &config, into(&createdUs),
		&r.firstCount, &r.lowMs, &r.frontierMs, &r.held, &r.exhausted, &r.windows, &r.contended, &r.provisioned)
	if err != nil || r.status == slots.Unplaced {
		return &r, err
	}
	r.slot = slots.Slot{
		ID: id.String, EventID: a.EventID, Series: slots.Series{Scope: scope.String, SizeMs: size.Int64},
		RequestedUs: requestedUs, WindowMs: millis(windowUs), ScheduledMs: millis(scheduledUs),
		ConfigID: config.String, CreatedUs: createdUs,
	}
	return &r, nil
}
