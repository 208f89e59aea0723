package sqlstore

import (
	"errors"
	"fmt"
	"testing"

	"github.com/headgate-rls/headgate/internal/kit/sqldb"
	"github.com/headgate-rls/headgate/slots"
)

// Each kind of sqldb has its kind of slots; of duplicates it depends on the index.
func TestStoreErrors(t *testing.T) {
	cause := errors.New("what the driver said")
	for _, c := range []struct {
		kind  sqldb.Kind
		index string
		want  slots.Kind
	}{
		{sqldb.Failed, "", slots.Failed},
		{sqldb.Passing, "", slots.Passing},
		{sqldb.Held, "", slots.Held},
		{sqldb.Unavailable, "", slots.Unavailable},
		{sqldb.Duplicate, "rl_event_slot_dtl_iux", slots.Duplicate},
		{sqldb.Duplicate, "RL_EVENT_SLOT_DTL.RL_EVENT_SLOT_DTL_IUX", slots.Duplicate},
		{sqldb.Duplicate, "RL_EVENT_SLOT_DTL.EVENT_ID", slots.Duplicate},
		{sqldb.Duplicate, "rl_event_slot_dtl_pk", slots.Passing},
		{sqldb.Duplicate, "RL_EVENT_WNDW_CONFIG_IUX", slots.Passing},
		{sqldb.Duplicate, "PRIMARY", slots.Passing},
		{sqldb.Duplicate, "", slots.Passing},
	} {
		err := storeError(&sqldb.Error{Kind: c.kind, Op: "claim a slot", Index: c.index, Err: cause})
		if slots.KindOf(err) != c.want || !errors.Is(err, cause) || err.Error() != "claim a slot: what the driver said" {
			t.Errorf("%v of %q became %v (%v), want %v", c.kind, c.index, err, slots.KindOf(err), c.want)
		}
	}
}

// An error that was translated before stays as it is.
func TestStoreErrorsStay(t *testing.T) {
	db := mustOpen(t, "sqlite::memory:")
	known := &slots.StoreError{Kind: slots.Superseded, Op: "lock a window",
		Err: &sqldb.Error{Kind: sqldb.Held, Err: errors.New("x")}}
	for _, err := range []error{nil, known, fmt.Errorf("more: %w", known)} {
		if got := db.sql.Fail(t.Context(), "x", err); got != err {
			t.Errorf("%v became %v", err, got)
		}
	}
	if err := db.sql.Fail(t.Context(), "x", known.Err); slots.KindOf(err) != slots.Held {
		t.Errorf("%v is of kind %v", err, slots.KindOf(err))
	}
}
