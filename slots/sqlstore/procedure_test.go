package sqlstore

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/headgate-rls/headgate/slots"
	"github.com/headgate-rls/headgate/slots/plan"
	"github.com/headgate-rls/headgate/test/random"
	"github.com/headgate-rls/headgate/test/testenv"
)

// sameAnswers puts scripts of searches to the engine tx and to a procedure.
func sameAnswers(t *testing.T, db *DB, p slots.Procedure, scripts uint64) {
	t.Helper()
	tx := slots.TxEngine(db)
	procedure := slots.ProcedureEngine(p, tx)
	for seed := range random.Seeds(t, scripts) {
		script := newSearches(rand.New(rand.NewPCG(seed, 7)), seed)
		for n := range 40 {
			s := script.next(n)
			a, errA := tx.Assign(soon(t), script.under("tx", s))
			b, errB := procedure.Assign(soon(t), script.under("pr", s))
			check(t, errA)
			check(t, errB)
			compareFound(t, fmt.Sprintf("seed %d search %d: %+v", seed, n, s), a, b)
		}
	}
}

// compareFound compares all but what differs by design: names, and times of
// creation.
func compareFound(t *testing.T, what string, a, b slots.Found) {
	t.Helper()
	for _, f := range []*slots.Found{&a, &b} {
		slot := &f.Answers[0].Slot
		slot.CreatedUs = 0
		for _, name := range []*string{&slot.Scope, &slot.EventID, &slot.ID} {
			if len(*name) > 2 {
				*name = (*name)[2:]
			}
		}
	}
	if a.Answers[0] != b.Answers[0] {
		t.Fatalf("%s:\ntx        %+v\nprocedure %+v", what, a.Answers[0], b.Answers[0])
	}
	a.Answers, b.Answers = nil, nil
	if fmt.Sprint(a) != fmt.Sprint(b) {
		t.Fatalf("%s:\ntx        %+v\nprocedure %+v", what, a, b)
	}
}

// searches makes searches that fill a few windows, hit the limits, and come again.
type searches struct {
	r    *rand.Rand
	name string
	size int64
	max  int64
	at   int64
}

func newSearches(r *rand.Rand, seed uint64) *searches {
	sizes := []int64{100, 999, 4000, 7000, 86_400_000}
	maxima := []int64{1, 2, 3, 5, plan.MaxPerWindow}
	return &searches{
		r: r, name: fmt.Sprint(seed), size: sizes[r.IntN(len(sizes))], max: maxima[r.IntN(len(maxima))],
		at: 1_790_000_000_000_000 + r.Int64N(1e12),
	}
}

func (c *searches) next(n int) slots.Search {
	us := c.at + c.r.Int64N(3*c.size*1000)
	first := plan.WindowStart(us, c.size)
	elapsed := plan.Elapsed(us, c.size)
	s := slots.Search{
		Series: slots.Series{SizeMs: c.size}, ConfigID: "config", Max: c.max, Stratified: c.r.IntN(2) == 0,
		FirstMs: first, FromMs: first + c.size,
		Direct: c.r.IntN(3) == 0, EndMs: first + 1000*c.size,
		Asks: []slots.Ask{{
			EventID: fmt.Sprintf("e%s-%d", c.name, n-c.r.IntN(2)*c.r.IntN(3)), SlotID: fmt.Sprintf("s%s-%d", c.name, n),
			RequestedUs: us,
			ElapsedMs:   elapsed, FirstMax: plan.FirstCapacity(c.max, elapsed, c.size), Bits: c.r.Uint32(),
		}},
	}
	if c.r.IntN(5) == 0 {
		s.EndMs = s.FromMs + c.r.Int64N(4)*c.size
	}
	return s
}

// under gives the search a scope and events of its own.
func (c *searches) under(prefix string, s slots.Search) *slots.Search {
	s.Scope = prefix + c.name
	ask := s.Asks[0]
	ask.EventID, ask.SlotID = prefix+ask.EventID, prefix+ask.SlotID
	s.Asks = []slots.Ask{ask}
	return &s
}

// use has a config count in the series, and leaves its windows as they are.
func use(t *testing.T, db *DB, s slots.Series) {
	t.Helper()
	id := fmt.Sprint("use-", s.Scope, s.SizeMs)
	_, err := db.PutConfig(soon(t), slots.Config{ID: id, Name: id, Max: 1, SizeMs: max(s.SizeMs, plan.MinSizeMs),
		Options: slots.Options{Scope: s.Scope}}, nowhere)
	check(t, err)
}

// TestPostgresDropsItsProcedure: a database of an earlier version loses the functions of the engine that
// PostgreSQL no longer has.
func TestPostgresDropsItsProcedure(t *testing.T) {
	db := migrated(t, shared(testenv.Postgres).create(t))
	for _, name := range []string{"RL_SLOT_PLACE(a INT)", "RL_SLOT_LOCK(a INT)", "RL_SLOT_SCOUT(a INT)"} {
		mustExec(t, db.sql.Write, "CREATE FUNCTION "+name+" RETURNS INT LANGUAGE sql AS 'SELECT 1'")
	}
	mustExec(t, db.sql.Write, "UPDATE RL_SCHEMA_HISTORY SET CHECKSUM_TX = 'old' WHERE SCRIPT_NM LIKE 'R\\_\\_%'")
	_, err := db.Migrate(soon(t))
	check(t, err)
	if n := one(t, db.sql.Read, "SELECT COUNT(*) FROM pg_proc WHERE proname LIKE 'rl\\_slot\\_%'"); n != "0" {
		t.Errorf("%s functions are left", n)
	}
	if db.Procedure() != nil || !db.HadProcedure() {
		t.Error("PostgreSQL has a procedure, or never had one")
	}
}
