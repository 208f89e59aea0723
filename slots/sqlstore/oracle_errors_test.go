package sqlstore

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/headgate-rls/headgate/slots"
	"github.com/headgate-rls/headgate/test/oracletest"
)

// The codes of Oracle and what may be done about each.
var oracleKinds = map[slots.Kind][]int{
	slots.Held:    {54, 30006},
	slots.Passing: {60, 8177, 28, 1012, 3113, 3114, 3135, 25408, 4061, 4065, 4068, 6508},
	slots.Unavailable: {1033, 1034, 1089, 1090, 12170, 12514, 12528, 12537, 12541, 12547, 16000,
		18, 20, 2391, 12516, 12519, 12520},
	slots.Failed: {942, 1017, 1400, 12899, 24344, 1653, 1654, 904, 1031, 38912, 6550},
}

// Whichever statement fails, the kind is that of the code.
func TestOracleErrorKinds(t *testing.T) {
	steps := []struct {
		name, at string
		do       func(db *DB) error
	}{
		{"find", "SELECT WNDW_SLOT_ID",
			func(db *DB) error { _, err := db.Find(context.Background(), []string{"e"}); return err }},
		{"begin", oracletest.Begin, claimOne},
		{"lock", "SELECT SLOT_CT", claimOne},
		{"insert", "INSERT INTO RL_EVENT_SLOT_DTL", claimOne},
		{"update", "UPDATE RL_WNDW_CT", claimOne},
		{"commit", oracletest.Commit, claimOne},
		{"procedure", "BEGIN RL_SLOT_API", func(db *DB) error {
			_, err := db.Procedure().Call(context.Background(), oracleSearch())
			return err
		}},
		{"connect", oracletest.Connect, func(db *DB) error { _, err := db.Generation(context.Background()); return err }},
	}
	for _, step := range steps {
		for kind, codes := range oracleKinds {
			for _, code := range codes {
				f := failing(step.at, oracletest.OraError(code))
				err := step.do(oracleStore(t, f))
				if got := slots.KindOf(err); err == nil || got != kind {
					t.Errorf("%s, ORA-%05d: %v is %v, want %v", step.name, code, err, got, kind)
				}
				if coded := (&oracletest.Error{}); !errors.As(err, &coded) || coded.Number != code {
					t.Errorf("%s: the code is lost in %v", step.name, err)
				}
			}
		}
	}
}

// failing obliges, except that texts which begin with at fail and that no event has
// a slot.
func failing(at string, err error) *oracletest.Fake {
	return &oracletest.Fake{Answer: func(text string) (oracletest.Answer, error) {
		switch {
		case strings.HasPrefix(text, at):
			return oracletest.Answer{}, err
		case strings.HasPrefix(text, "SELECT WNDW_SLOT_ID"):
			return oracletest.Answer{}, nil
		}
		return obliging(text)
	}}
}

// claimOne places one slot, as the engine tx does.
func claimOne(db *DB) error {
	ctx := context.Background()
	tx, err := db.Begin(ctx, "")
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if _, _, err := tx.Lock(ctx, oracleSeries, noonMs, 100); err != nil {
		return err
	}
	if err := tx.Claim(ctx, oracleSeries, noonMs, []slots.Slot{{ID: "s1", EventID: "e1"}}); err != nil {
		return err
	}
	return tx.Commit(ctx)
}

// A statement that fails, even by ORA-00060, which undoes the statement alone, has
// the transaction rolled back.
func TestOracleRollback(t *testing.T) {
	for _, at := range []string{"SELECT SLOT_CT", "INSERT INTO RL_EVENT_SLOT_DTL", "UPDATE RL_WNDW_CT"} {
		f := failing(at, oracletest.OraError(60))
		if err := claimOne(oracleStore(t, f)); err == nil {
			t.Errorf("%s failed and nobody noticed", at)
		}
		texts := f.Texts()
		if last := texts[len(texts)-1]; last != oracletest.Rollback || slices.Contains(texts, oracletest.Commit) {
			t.Errorf("after %s: %q, want a rollback at the end and no commit", at, texts)
		}
	}
}

// A commit whose answer is lost is Passing: it may have taken effect.
func TestOracleCommitLost(t *testing.T) {
	committed := false
	f := &oracletest.Fake{Answer: func(text string) (oracletest.Answer, error) {
		if text == oracletest.Commit {
			committed = true
			return oracletest.Answer{}, oracletest.OraError(3113)
		}
		return obliging(text)
	}}
	db := oracleStore(t, f)
	if err := claimOne(db); !committed || slots.KindOf(err) != slots.Passing || err == nil {
		t.Errorf("committed %v, error %v: want it Passing", committed, err)
	}
	if found, err := db.Find(t.Context(), []string{"e1"}); err != nil || len(found) != 1 {
		t.Errorf("the store is of no use any more: %v, %v", found, err)
	}
}

// ORA-00001 means different things for different indexes.
func TestOracleDuplicates(t *testing.T) {
	for index, want := range map[string]slots.Kind{
		"RATE_LIMITER.RL_EVENT_SLOT_DTL_IUX":    slots.Duplicate,
		"RL_EVENT_SLOT_DTL_IUX":                 slots.Duplicate,
		"RATE_LIMITER.RL_EVENT_WNDW_CONFIG_IUX": slots.Passing,
		"RATE_LIMITER.RL_EVENT_WNDW_CONFIG_PK":  slots.Passing,
		"RL_EVENT_SLOT_DTL_PK":                  slots.Passing,
	} {
		f := failing("INSERT INTO RL_EVENT_SLOT_DTL",
			&oracletest.Error{Number: 1, Text: "ORA-00001: unique constraint (" + index + ") violated"})
		if err := claimOne(oracleStore(t, f)); err == nil || slots.KindOf(err) != want {
			t.Errorf("%s: %v is %v, want %v", index, err, slots.KindOf(err), want)
		}
	}
}
