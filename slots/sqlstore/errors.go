package sqlstore

import (
	"strings"

	"github.com/headgate-rls/headgate/internal/kit/sqldb"
	"github.com/headgate-rls/headgate/slots"
)

// storeKinds are the kinds of sqldb as slots has them, except Duplicate.
var storeKinds = map[sqldb.Kind]slots.Kind{
	sqldb.Failed:      slots.Failed,
	sqldb.Passing:     slots.Passing,
	sqldb.Held:        slots.Held,
	sqldb.Unavailable: slots.Unavailable,
}

// storeError makes a StoreError of an Error of sqldb.
func storeError(e *sqldb.Error) error {
	kind := storeKinds[e.Kind]
	if e.Kind == sqldb.Duplicate {
		kind = duplicate(e.Index)
	}
	return &slots.StoreError{Kind: kind, Op: e.Op, Err: cause{e}}
}

// A cause is an Error of sqldb whose text is that of the driver's error.
type cause struct{ of *sqldb.Error }

func (c cause) Error() string { return c.of.Err.Error() }
func (c cause) Unwrap() error { return c.of }

// duplicate says what a duplicate key means. index is the name of the index or the column in the
// database's message. Each slot gets a new id, so a duplicate id is from an earlier try whose
// answer was lost, even if its row is not visible yet. A duplicate name of a config means that
// another process puts the config, too.
func duplicate(index string) slots.Kind {
	name := strings.ToUpper(index)
	if strings.HasSuffix(name, "RL_EVENT_SLOT_DTL_IUX") || strings.HasSuffix(name, "RL_EVENT_SLOT_DTL.EVENT_ID") {
		return slots.Duplicate
	}
	return slots.Passing
}
