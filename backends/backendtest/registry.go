package backendtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/headgate-rls/headgate/backends"
)

// registry returns that of a new handle, or nil if the backend has none.
func (e *env) registry() backends.Registry {
	e.Helper()
	if driver, ok := e.openAnother().(backends.Registrar); ok {
		return driver.Registry()
	}
	return nil
}

// registries are those of two handles, one twice if handles share nothing.
func (e *env) registries() (a, b backends.Registry) {
	e.Helper()
	a = e.registry()
	b = a
	if e.s.Shared && a != nil {
		b = e.registry()
	}
	return a, b
}

func (e *env) patiently() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), patience)
}

func (e *env) claim(r backends.Registry, name, value string, ttl time.Duration) string {
	e.Helper()
	ctx, cancel := e.patiently()
	defer cancel()
	got, err := r.Claim(ctx, e.prefix+name, value, ttl)
	if err != nil {
		e.Errorf("Claim(%q): %v", name, err)
	}
	return got
}

func (e *env) putRows(r backends.Registry, ttl time.Duration, rows ...backends.Row) (left int) {
	e.Helper()
	// Thousands of rows are many requests to some stores.
	ctx, cancel := context.WithTimeout(context.Background(), patience+time.Duration(len(rows))*5*time.Millisecond)
	defer cancel()
	left, err := r.Put(ctx, e.prefix, rows, ttl)
	if err != nil {
		e.Fatalf("Put of %d rows: %v", len(rows), err)
	}
	return left
}

// rows lists the table as "key=value", in order.
func (e *env) rows(r backends.Registry) []string {
	e.Helper()
	ctx, cancel := e.patiently()
	defer cancel()
	list, err := r.List(ctx, e.prefix)
	if err != nil {
		e.Fatalf("List: %v", err)
	}
	var texts []string
	for _, row := range list {
		texts = append(texts, row.Key+"="+row.Value)
	}
	slices.Sort(texts)
	return texts
}

func (e *env) wantRows(r backends.Registry, want ...string) {
	e.Helper()
	if got := e.rows(r); !slices.Equal(got, want) {
		e.Errorf("the table has %q, want %q", got, want)
	}
}

// eventuallyRows waits until the table has no more than these.
func (e *env) eventuallyRows(r backends.Registry, want ...string) {
	e.Helper()
	for until := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		got := e.rows(r)
		if slices.Equal(got, want) {
			return
		}
		if time.Now().After(until) {
			e.Fatalf("the table still has %q, want %q", got, want)
		}
	}
}

// checkClaims: the first value stays, for all, as long as it lives; of many
// that come at once one wins.
func checkClaims(e *env) {
	a, b := e.registries()
	if a == nil {
		return
	}
	const value = "x\x00\xff{}%=\n"
	for _, c := range []struct {
		r           backends.Registry
		value, want string
	}{{a, value, value}, {b, "other", value}, {a, "other", value}, {b, value, value}} {
		if got := e.claim(c.r, "secret", c.value, time.Hour); got != c.want {
			e.Errorf("a claim of %q got %q, want %q", c.value, got, c.want)
		}
	}
	if got := e.claim(b, "another", "other", time.Hour); got != "other" {
		e.Errorf("a claim of another name got %q", got)
	}
	got := make([]string, 16)
	var wg sync.WaitGroup
	for i := range got {
		wg.Go(func() { got[i] = e.claim([]backends.Registry{a, b}[i%2], "race", fmt.Sprint(i), time.Hour) })
	}
	wg.Wait()
	slices.Sort(got)
	if got[0] == "" || got[0] != got[len(got)-1] {
		e.Errorf("of claims at the same time several won: %q", got)
	}
	e.claim(a, "short", "first", 20*time.Millisecond)
	for until := time.Now().Add(patience); e.claim(b, "short", "second", time.Hour) != "second"; time.Sleep(
		5 * time.Millisecond) {
		if time.Now().After(until) {
			e.Fatal("a claim does not end")
		}
	}
}

// checkTables: rows are put, replaced, dropped and expire.
func checkTables(e *env) {
	a, b := e.registries()
	if a == nil {
		return
	}
	e.wantRows(a)
	odd := backends.Row{Key: "k{}%\x00\xff", Value: "v\n\x00\xff"}
	e.putRows(a, time.Hour, backends.Row{Key: "1", Value: "a"}, odd, backends.Row{Key: "2"})
	e.putRows(b, time.Hour, backends.Row{Key: "1", Value: "b"})
	for _, r := range []backends.Registry{a, b} {
		e.wantRows(r, "1=b", "2=", odd.Key+"="+odd.Value)
	}
	ctx, cancel := e.patiently()
	defer cancel()
	if list, err := a.List(ctx, e.prefix+"/other"); err != nil || len(list) > 0 {
		e.Errorf("another table has %q (%v)", list, err)
	}
	if err := b.Drop(ctx, e.prefix, []string{"2", odd.Key, "never"}); err != nil {
		e.Error(err)
	}
	e.wantRows(a, "1=b")
	e.putRows(a, 30*time.Millisecond, backends.Row{Key: "brief", Value: "x"}, backends.Row{Key: "renewed", Value: "x"})
	e.putRows(b, time.Hour, backends.Row{Key: "renewed", Value: "y"})
	e.eventuallyRows(b, "1=b", "renewed=y")
}

// checkTableBound: a full table takes no new rows, and goes on for those that
// are there; what expires makes room.
func checkTableBound(e *env) {
	a, _ := e.registries()
	if a == nil {
		return
	}
	rows := make([]backends.Row, backends.MaxRows+3)
	for i := range rows {
		rows[i] = backends.Row{Key: fmt.Sprintf("%05d", i), Value: "x"}
	}
	rows[0].Value = strings.Repeat("x", backends.MaxRowLen-len(rows[0].Key))
	if left := e.putRows(a, time.Hour, rows...); left != 3 {
		e.Errorf("%d rows were left out, want 3", left)
	}
	if left := e.putRows(a, 50*time.Millisecond, rows[0], backends.Row{Key: "new"}, rows[1]); left != 1 {
		e.Errorf("%d rows were left out, want the new one", left)
	}
	if n := len(e.rows(a)); n > backends.MaxRows || n < backends.MaxRows-2 {
		e.Errorf("the table has %d rows, want %d, or two less", n, backends.MaxRows)
	}
	for until := time.Now().Add(patience); e.putRows(a, time.Hour, backends.Row{Key: "new"}) > 0; time.Sleep(
		10 * time.Millisecond) {
		if time.Now().After(until) {
			e.Fatal("there is no room where rows have expired")
		}
	}
	ctx, cancel := e.patiently()
	defer cancel()
	for what, row := range map[string]backends.Row{"no key": {Value: "x"},
		"a long key":   {Key: strings.Repeat("k", backends.MaxKeyLen+1)},
		"a long value": {Key: "k", Value: strings.Repeat("x", backends.MaxRowLen)}} {
		if _, err := a.Put(ctx, e.prefix+"bad", []backends.Row{{Key: "good"}, row}, time.Hour); !errors.Is(err,
			backends.ErrInvalid) {
			e.Errorf("a row with %s: error %v, want ErrInvalid", what, err)
		}
	}
	if list, err := a.List(ctx, e.prefix+"bad"); err != nil || len(list) > 0 {
		e.Errorf("refused rows are stored: %q (%v)", list, err)
	}
}
