package sqlstore

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/internal/kit/sqldb"
	"github.com/headgate-rls/headgate/limit"
	"github.com/headgate-rls/headgate/test/oracletest"
)

// oracleOn is a backend of Oracle's dialect over a fake of its driver.
func oracleOn(t *testing.T, f *oracletest.Fake) *Backend {
	t.Helper()
	conf := Config{Timeout: 10 * time.Second, InFlight: 1, MaxSlice: defaultMaxSlice, Sweep: seldom, Log: quiet,
		dialect: oracle()}
	b := start(conf, sqldb.Over(sqldb.Oracle, f, conf.database()))
	t.Cleanup(func() { check(t, b.Close()) })
	return b
}

// Beginnings of what the fake is sent.
const lockBlock, readBlock, takeBack = "BEGIN HEADGATE_STATE_API.LOCK_ROW",
	"BEGIN HEADGATE_STATE_API.READ_PART", "ROLLBACK"

// obliging answers as an Oracle without rows would.
func obliging(text string) (oracletest.Answer, error) {
	switch {
	case strings.HasPrefix(text, lockBlock):
		var out []any
		for range strings.Count(text, "LOCK_ROW") {
			out = append(out, -1, []byte(nil))
		}
		for range strings.Count(text, "OLDEST_LOG") {
			out = append(out, []byte(nil), []byte(nil))
		}
		for range strings.Count(text, "COUNT_ROWS") {
			out = append(out, 0)
		}
		return oracletest.Answer{Out: append(out, 1_900_000_000_000_000)}, nil
	case strings.HasPrefix(text, readBlock):
		var out []any
		for range strings.Count(text, "READ_PART") {
			out = append(out, []byte("part"))
		}
		return oracletest.Answer{Out: out}, nil
	case strings.HasPrefix(text, "SELECT K, ENDS_US"):
		return oracletest.Answer{Rows: [][]driver.Value{{[]byte("1:a"), int64(1), int64(0), int64(1_900_000_000_000_000)}}},
			nil
	case strings.HasPrefix(text, "SELECT K FROM"):
		return oracletest.Answer{Rows: [][]driver.Value{{[]byte("1:a")}}}, nil
	case strings.HasPrefix(text, "SELECT"):
		return oracletest.Answer{}, nil
	}
	return oracletest.Answer{Changed: 1}, nil
}

// withState is obliging with a row that has a state, and so many parts more.
func withState(state []byte, more int) func(string) (oracletest.Answer, error) {
	return func(text string) (oracletest.Answer, error) {
		if strings.HasPrefix(text, lockBlock) && strings.Count(text, "LOCK_ROW") == 1 {
			return oracletest.Answer{Out: []any{more, state, 1_900_000_000_000_000}}, nil
		}
		return obliging(text)
	}
}

// everyText is each text that Oracle is sent, with its arguments.
func everyText(t *testing.T) (all []oracletest.Call) {
	t.Helper()
	note := func(answer func(string) (oracletest.Answer, error), do func(b *Backend)) {
		f := &oracletest.Fake{Answer: answer}
		do(oracleOn(t, f))
		all = append(all, f.Statements()...)
	}
	note(obliging, func(b *Backend) {
		_, err := b.db.Migrate(soon(t), schema())
		check(t, err)
		check(t, try(soon(t), b, ask(upTo(5), 1, "a", "b"), ask(upTo(5), 1, "c"))[0].Err)
		check(t, try(soon(t), b, ask(upTo(5), 0, "a"))[0].Err)
		_ = b.Ping(soon(t)) // says that the history is empty
		check(t, b.Forget(soon(t), []limit.Key{{Group: "a"}, {Group: "b"}}))
		_, err = b.sweepPage(soon(t), nil, 0)
		check(t, err)
		r := b.Registry()
		_, err = r.Claim(soon(t), "n", "v", time.Minute)
		check(t, err)
		_, err = r.Put(soon(t), "t", []backends.Row{{Key: "k", Value: "v"}}, time.Minute)
		check(t, err)
		_, err = r.List(soon(t), "t")
		check(t, err)
		check(t, r.Drop(soon(t), "t", []string{"k"}))
	})
	long := make([]byte, 2*oraclePart+1)
	key := counterKey(limit.Key{Group: "a"})
	note(withState([]byte("s"), 2), func(b *Backend) {
		check(t, b.do(soon(t), "put",
			&plain{keys: [][]byte{key}, then: func(values [][]byte, _ limit.Instant) ([]row, [][]byte) {
				if string(values[0]) != "spartpart" {
					t.Errorf("the state is %q", values[0])
				}
				return []row{{key: key, state: long}}, nil
			}}))
	})
	note(withLongLog(t), func(b *Backend) {
		v := try(soon(t), b, limit.Request{Ops: []limit.Op{{Key: limit.Key{Group: "a"}, Limit: manyPerHour, Cost: 1}}})[0]
		if v.Err != nil || v.Outcomes[0].Remaining != manyPerHour.Max()-1101 {
			t.Errorf("%+v", v)
		}
	})
	return all
}

// withLongLog is obliging with a log of which one part has ended and one is in use, and which is long
// enough for a third one. The one in use is not among the oldest.
func withLongLog(t *testing.T) func(string) (oracletest.Answer, error) {
	const now = 1_900_000_000_000_000
	inUse := limit.State{At: now - 3_599_000_000, N: 100, Log: []limit.Record{{At: now - 3_600_000_000, N: 40},
		{At: now - 3_599_000_000, N: 60}}}
	log := limit.State{At: now - 1, N: 1150, M: 2, Log: []limit.Record{{At: now - 4_000_000_000, N: 50},
		{At: inUse.At, N: 100}}}
	for i := range 1000 {
		log.Log = append(log.Log, limit.Record{At: limit.Instant(now - 1000 + i), N: 1})
	}
	log.Log[2].N, log.N = 41, log.N+40 // so many have ended with the part
	part, err := inUse.AppendBinary(nil)
	check(t, err)
	state, err := log.AppendBinary(nil)
	check(t, err)
	return func(text string) (oracletest.Answer, error) {
		switch {
		case strings.HasPrefix(text, lockBlock):
			return oracletest.Answer{Out: []any{1, state[:oraclePart], []byte(nil), []byte(nil), now}}, nil
		case strings.HasPrefix(text, readBlock):
			return oracletest.Answer{Out: []any{state[oraclePart:]}}, nil
		case strings.HasPrefix(text, "BEGIN HEADGATE_STATE_API.READ_LOG"):
			return oracletest.Answer{Out: []any{part}}, nil
		}
		return obliging(text)
	}
}

// The grammar of PL/SQL and the lint accept all of it, and every argument is text, a whole number or
// bytes. The package has what MariaDB understands, too.
func TestOracleTexts(t *testing.T) {
	t.Parallel()
	scripts := printedOracle(t)
	var list []oracletest.Text
	seen := map[string]bool{}
	for i, c := range everyText(t) {
		if !seen[c.Text] {
			list = append(list, oracletest.Text{Name: fmt.Sprintf("sent-%d", i), Text: c.Text})
		}
		seen[c.Text], seen[oracletest.Uncommented(c.Text)] = true, true
		if slices.Contains(scripts, oracletest.Uncommented(c.Text)) {
			continue // has no arguments
		}
		if err := oracletest.CheckArguments(c); err != nil {
			t.Errorf("%v in %s", err, c.Text)
		}
	}
	for i, text := range scripts {
		if !seen[text] {
			list = append(list, oracletest.Text{Name: fmt.Sprintf("printed-%d", i), Text: text})
		}
		if strings.Contains(text, "PACKAGE") && strings.HasPrefix(text, "CREATE") {
			if found := oracletest.NotPortable(text); len(found) > 0 {
				t.Errorf("%.60s… has %s", text, found)
			}
		}
	}
	for _, c := range list {
		for _, problem := range oracletest.Lint(c.Text) {
			t.Errorf("%s: %s\n%s", c.Name, problem, c.Text)
		}
	}
	if found := oracletest.Grammar(t, list); found != "" {
		t.Errorf("the grammar refuses:\n%s", found)
	}
	for _, name := range []string{"CLOCK", "LOCK_ROW", "READ_PART", "COUNT_ROWS", "ADD_ROW", "PUT_ROW", "ADD_PART",
		"DROP_PARTS", "DROP_ROW",
		"OLDEST_LOG", "READ_LOG", "ADD_LOG", "DROP_LOG"} {
		if !slices.ContainsFunc(list, func(c oracletest.Text) bool {
			return strings.HasPrefix(c.Text, "BEGIN") && strings.Contains(c.Text, "."+name+"(")
		}) {
			t.Errorf("%s is never called: it is not checked", name)
		}
	}
	if len(list) < 20 {
		t.Errorf("only %d texts are checked", len(list))
	}
}

// A slice is two round trips on a session that stays as it is, and so is the next one.
func TestOracleTwoRoundTrips(t *testing.T) {
	f := &oracletest.Fake{Answer: obliging}
	b := oracleOn(t, f)
	for range 2 {
		check(t, try(soon(t), b, ask(upTo(5), 1, "a", "b"))[0].Err)
	}
	check(t, try(soon(t), b, ask(upTo(5), 0, "a"))[0].Err) // changes nothing
	var sent []string
	for _, text := range f.Texts() {
		sent = append(sent, strings.Split(strings.TrimPrefix(text, "BEGIN HEADGATE_STATE_API."), "(")[0])
	}
	want := "||LOCK_ROW|ADD_ROW|LOCK_ROW|ADD_ROW|LOCK_ROW|ROLLBACK" // after a connection and a beginning
	if got := strings.Join(sent, "|"); got != want {
		t.Errorf("sent %s, want %s", got, want)
	}
	for _, text := range f.Texts() {
		if strings.Contains(text, "ADD_ROW") && !strings.HasSuffix(text, " COMMIT; END;") {
			t.Errorf("no commit: %s", text)
		}
	}
}

// What an error of the first block or of the second one means for a caller. Only a session that has
// ended leaves it unknown whether the second one was applied.
func TestOracleErrors(t *testing.T) {
	for _, c := range []struct {
		code     int
		again    bool // tried again, and then it succeeds
		doubtful bool // after the second block
	}{
		{code: 60, again: true}, {code: 1, again: true}, {code: 54, again: true}, {code: 4068, again: true},
		{code: 3113, again: true, doubtful: true}, {code: 28, again: true, doubtful: true},
		{code: 1013, again: true, doubtful: true},
		{code: 1033, doubtful: true}, {code: 12541, doubtful: true},
		{code: 20, doubtful: true},
		{code: 942}, {code: 6550}, {code: 1653},
	} {
		for _, at := range []string{lockBlock, "BEGIN HEADGATE_STATE_API.ADD_ROW"} {
			second := at != lockBlock
			failures := 0
			f := &oracletest.Fake{Answer: func(text string) (oracletest.Answer, error) {
				if strings.HasPrefix(text, at) && failures == 0 {
					failures++
					if c.code == 1 {
						return oracletest.Answer{}, &oracletest.Error{Number: 1,
							Text: "ORA-00001: unique constraint (A.HEADGATE_STATE_PK) violated"}
					}
					return oracletest.Answer{}, oracletest.OraError(c.code)
				}
				return obliging(text)
			}}
			v := try(soon(t), oracleOn(t, f), ask(upTo(5), 1, "a"))[0]
			doubtful := second && c.doubtful
			switch {
			case c.again && !doubtful:
				if v.Err != nil || !v.Admitted {
					t.Errorf("ORA-%05d in %s: %+v, want it to be tried again", c.code, at, v)
				}
			case !errors.Is(v.Err, backends.ErrUnavailable) || errors.Is(v.Err, backends.ErrNotApplied) == doubtful:
				t.Errorf("ORA-%05d in %s: %v, doubtful should be %v", c.code, at, v.Err, doubtful)
			}
			for until := time.Now().Add(10 * time.Second); !slices.Contains(f.Texts(), takeBack); time.Sleep(time.Millisecond) {
				if time.Now().After(until) { // nobody waits for it
					t.Fatalf("ORA-%05d in %s: nothing is rolled back: %q", c.code, at, f.Texts())
				}
			}
		}
	}
}

// A session whose end is not known is not used again, and neither are those that stand beside it.
func TestOracleSessionsThatFailedAreDropped(t *testing.T) {
	var lockLost, rollbackLost atomic.Bool // the rollback is sent while the next session begins
	f := &oracletest.Fake{Answer: func(text string) (oracletest.Answer, error) {
		if strings.HasPrefix(text, lockBlock) && !lockLost.Swap(true) || text == takeBack && !rollbackLost.Swap(true) {
			return oracletest.Answer{}, oracletest.OraError(3113)
		}
		return obliging(text)
	}}
	b := oracleOn(t, f)
	check(t, try(soon(t), b, ask(upTo(5), 1, "a"))[0].Err)
	begun := 0
	for _, text := range f.Texts() {
		if text == oracletest.Begin {
			begun++
		}
	}
	if begun != 2 {
		t.Errorf("%d sessions were begun, want 2: %q", begun, f.Texts())
	}
}

// A caller whose time is over gets an answer, and a session that it waited for is not lost.
func TestOracleCallerGivesUp(t *testing.T) {
	f := &oracletest.Fake{Answer: obliging}
	b := oracleOn(t, f)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := try(ctx, b, ask(upTo(5), 1, "a"))[0].Err; !errors.Is(err, backends.ErrNotApplied) {
		t.Errorf("got %v", err)
	}
	check(t, try(soon(t), b, ask(upTo(5), 1, "a"))[0].Err)
	for until := time.Now().Add(10 * time.Second); b.db.Pool().InUse != 1; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(until) {
			t.Fatalf("%d connections are in use, want the one session that is kept", b.db.Pool().InUse)
		}
	}
}
