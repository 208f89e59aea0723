package pgstore

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/internal/kit/sqldb"
	"github.com/headgate-rls/headgate/notify"
	"github.com/headgate-rls/headgate/test/testenv"
)

// topic is a fake of Kafka, for what a broker cannot be made to do at a given moment: to fail
// for one message, or to be asked between two steps of a transaction.
type topic struct {
	mu       sync.Mutex
	messages []notify.Message
	fail     func(notify.Message) error
}

func (p *topic) Publish(_ context.Context, messages []notify.Message) []error {
	errs := make([]error, len(messages))
	for i, m := range messages {
		p.mu.Lock()
		fail := p.fail
		p.mu.Unlock()
		if fail != nil {
			errs[i] = fail(m)
		}
		if errs[i] == nil {
			p.mu.Lock()
			p.messages = append(p.messages, m)
			p.mu.Unlock()
		}
	}
	return errs
}

func (p *topic) failing(f func(notify.Message) error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fail = f
}

func (p *topic) texts() (list []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, m := range p.messages {
		list = append(list, m.UserID+":"+m.Text)
	}
	return list
}

type fixture struct {
	*Store
	topic *topic
	t     *testing.T
	url   string
}

func open(t *testing.T, url string, outbox bool) *fixture {
	t.Helper()
	p := new(topic)
	s, err := Open(Config{Database: sqldb.Config{URL: url, PoolMin: 1, PoolMax: 10}, Publisher: p, Outbox: outbox})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return &fixture{s, p, t, url}
}

func start(t *testing.T, outbox bool) *fixture {
	t.Helper()
	f := open(t, testenv.SharedDatabase(t, testenv.Postgres).CreateDatabase("notify"), outbox)
	if _, err := f.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	return f
}

func (f *fixture) configure(user string, limit, minutes int64) {
	f.t.Helper()
	if _, err := f.Configure(f.t.Context(), notify.Config{UserID: user, RateLimit: limit, Minutes: minutes}); err != nil {
		f.t.Fatal(err)
	}
}

func message(user, text string) notify.Message {
	return notify.Message{ID: "id-" + text, UserID: user, Text: text, AcceptedAt: time.Now().UTC()}
}

// send returns what became of a message: "ok 3" with the units that remain, or the error.
func (f *fixture) send(user, text string) string {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	a, err := f.Store.Send(ctx, message(user, text))
	var limited *notify.LimitedError
	switch {
	case err == nil:
		return fmt.Sprint("ok ", a.Remaining)
	case errors.As(err, &limited):
		return "limited"
	}
	return err.Error()
}

func (f *fixture) expect(got, want string) {
	f.t.Helper()
	if !strings.HasPrefix(got, want) {
		f.t.Errorf("got %q, want %q", got, want)
	}
}

// count returns current_count, reserved_count and the seconds since last_refresh_time.
func (f *fixture) count(user string) (count, reserved int64, age float64) {
	f.t.Helper()
	err := f.db.Write.QueryRow("SELECT current_count, reserved_count, extract(epoch FROM clock_timestamp() - "+
		"last_refresh_time) FROM rate_limit_store WHERE user_id = $1", user).
		Scan(&count, &reserved, &age)
	if err != nil {
		f.t.Fatal(err)
	}
	return count, reserved, age
}

// elapse moves the beginning of the user's window into the past.
func (f *fixture) elapse(user string, by time.Duration) {
	f.t.Helper()
	_, err := f.db.Write.Exec("UPDATE rate_limit_store SET last_refresh_time = last_refresh_time - $2 * interval '1 "+
		"microsecond' WHERE user_id = $1", user, by.Microseconds())
	if err != nil {
		f.t.Fatal(err)
	}
}

func TestAUserMaySendUpToTheLimitInEachWindow(t *testing.T) {
	for _, outbox := range []bool{false, true} {
		t.Run(fmt.Sprint("outbox ", outbox), func(t *testing.T) {
			f := start(t, outbox)
			f.expect(f.send("alice", "0"), notify.ErrNoConfig.Error())
			f.configure("alice", 2, 1)
			if n, _, age := f.count("alice"); n != 0 || age < 0 || age > 10 {
				t.Errorf("a new row has count %d and is %v seconds old", n, age)
			}
			f.expect(f.send("alice", "1"), "ok 1")
			f.elapse("alice", 30*time.Second)
			f.expect(f.send("alice", "2"), "ok 0")
			f.expect(f.send("alice", "3"), "limited")
			f.elapse("alice", 30*time.Second)
			f.expect(f.send("alice", "4"), "ok 1")
			if n, _, age := f.count("alice"); n != 1 || age > 10 {
				t.Errorf("in the new window the row has count %d and is %v seconds old", n, age)
			}
			if err := relayAll(f); err != nil {
				t.Fatal(err)
			}
			if got := strings.Join(f.topic.texts(), " "); got != "alice:1 alice:2 alice:4" {
				t.Errorf("published: %s", got)
			}
			// A change begins anew.
			f.configure("alice", 1, 5)
			f.expect(f.send("alice", "5"), "ok 0")
			f.expect(f.send("alice", "6"), "limited")
		})
	}
}

func relayAll(f *fixture) error {
	for f.outbox {
		if n, err := f.relay(); n == 0 || err != nil {
			return err
		}
	}
	return nil
}

// relay publishes a slice, of users of whom nothing is known.
func (f *fixture) relay() (int, error) {
	n, failure, err := f.relaySlice(context.Background(), new(behind))
	return n, errors.Join(failure, err)
}

func TestALimitedSendSaysWhenTheWindowEnds(t *testing.T) {
	f := start(t, false)
	f.configure("zero", 0, 2)
	f.elapse("zero", 3*time.Minute) // its window is over, and a new one has no room either
	_, err := f.Store.Send(t.Context(), message("zero", "x"))
	var limited *notify.LimitedError
	if !errors.As(err, &limited) || limited.Rest != 2*time.Minute {
		t.Errorf("%v", err)
	}
	if _, _, age := f.count("zero"); age > 10 {
		t.Errorf("the window was not refreshed: %v seconds", age)
	}
}

func TestWhatIsNotPublishedIsNotCounted(t *testing.T) {
	f := start(t, false)
	f.configure("u", 2, 1)
	f.topic.failing(func(notify.Message) error {
		return &notify.UnavailableError{Part: notify.Broker, Err: errors.New("no broker")}
	})
	f.expect(f.send("u", "1"), "the broker is unavailable")
	if n, _, _ := f.count("u"); n != 0 {
		t.Errorf("%d are counted", n)
	}
	f.topic.failing(nil)
	f.expect(f.send("u", "2"), "ok 1")
}

// TestOneUnitIsGivenOnce: 64 sends at a time on three stores, with one unit left.
func TestOneUnitIsGivenOnce(t *testing.T) {
	for _, outbox := range []bool{false, true} {
		f := start(t, outbox)
		stores := []*fixture{f, open(t, f.url, outbox), open(t, f.url, outbox)}
		f.configure("u", 5, 1)
		for i := range 4 {
			f.expect(f.send("u", fmt.Sprint(i)), "ok")
		}
		var wait sync.WaitGroup
		var ok, limited atomic.Int64
		for i := range 64 {
			wait.Go(func() {
				switch got := stores[i%3].send("u", fmt.Sprint("last", i)); {
				case got == "ok 0":
					ok.Add(1)
				case got == "limited":
					limited.Add(1)
				default:
					t.Error(got)
				}
			})
		}
		wait.Wait()
		if ok.Load() != 1 || limited.Load() != 63 {
			t.Errorf("outbox %v: %d were accepted and %d refused", outbox, ok.Load(), limited.Load())
		}
		if n, _, _ := f.count("u"); n != 5 {
			t.Errorf("%d are counted", n)
		}
	}
}

// TestAPublishedMessageIsCountedThoughItsCommitFails: the session that holds the lock is
// ended between publish and commit.
func TestAPublishedMessageIsCountedThoughItsCommitFails(t *testing.T) {
	f := start(t, false)
	f.configure("u", 5, 1)
	other := open(t, f.url, false)
	f.topic.failing(func(notify.Message) error {
		_, err := other.db.Write.Exec("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = " +
			"current_database() AND state = 'idle in transaction'")
		return err
	})
	f.expect(f.send("u", "1"), "ok 4")
	if n, _, _ := f.count("u"); n != 1 || f.recounts.Load() != 1 {
		t.Errorf("%d are counted, %d of them again", n, f.recounts.Load())
	}
}

// TestAUserWhoWaitsLeavesConnectionsToOthers: while Kafka does not answer for one user, who
// sends more often than there are connections, others are served.
func TestAUserWhoWaitsLeavesConnectionsToOthers(t *testing.T) {
	f := start(t, false)
	f.configure("slow", 100, 1)
	f.configure("other", 100, 1)
	hold := make(chan struct{})
	f.topic.failing(func(m notify.Message) error {
		if m.UserID == "slow" {
			<-hold
		}
		return nil
	})
	var wait sync.WaitGroup
	for i := range 30 {
		wait.Go(func() { f.send("slow", fmt.Sprint(i)) })
	}
	testenv.Eventually(t, 5*time.Second, "the slow user's turn is taken", func() string {
		if f.db.Pool().InUse == 0 {
			return "no connection is in use"
		}
		return ""
	})
	f.expect(f.send("other", "1"), "ok 99")
	if n := f.db.Pool().InUse; n != 1 {
		t.Errorf("%d connections are in use", n)
	}
	close(hold)
	wait.Wait()
	if len(f.turns.users) != 0 {
		t.Errorf("%d turns are left", len(f.turns.users))
	}
}

func TestTheOutboxKeepsMessagesUntilTheyAreConfirmed(t *testing.T) {
	f := start(t, true)
	f.configure("a", 100, 1)
	f.configure("b", 100, 1)
	for i := range 3 {
		f.expect(f.send("a", fmt.Sprint(i)), "ok")
		f.expect(f.send("b", fmt.Sprint(i)), "ok")
	}
	f.topic.failing(func(m notify.Message) error {
		if m.UserID == "a" && m.Text == "1" {
			return errors.New("not confirmed")
		}
		return nil
	})
	if n, err := f.relay(); n != 4 || err == nil {
		t.Fatal(n, err)
	}
	f.topic.failing(nil)
	if err := relayAll(f); err != nil {
		t.Fatal(err)
	}
	// a:2 comes again, so that it is behind a:1.
	if got := strings.Join(f.topic.texts(), " "); got != "a:0 b:0 b:1 a:2 b:2 a:1 a:2" {
		t.Errorf("published: %s", got)
	}
}

// TestAMessageThatCannotBePublishedDelaysItsUserOnly, though it is the oldest and all of a slice is
// behind it. When it can be, the user's messages come in their order.
func TestAMessageThatCannotBePublishedDelaysItsUserOnly(t *testing.T) {
	f := start(t, true)
	f.outboxMax = 2000
	f.configure("a", 10000, 60)
	f.configure("b", 10000, 60)
	var messages []notify.Message
	for i := range relaySlice + 10 {
		messages = append(messages, message("a", fmt.Sprintf("%04d", i)))
	}
	if err := f.letters.write(t.Context(), messages); err != nil {
		t.Fatal(err)
	}
	f.topic.failing(func(m notify.Message) error {
		if m.UserID == "a" && m.Text == "0000" {
			return errors.New("too large")
		}
		return nil
	})
	ctx, cancel := context.WithCancel(t.Context())
	var relay sync.WaitGroup
	relay.Go(func() { f.Relay(ctx) })
	defer relay.Wait()
	defer cancel()
	published := func(user string) (texts []string) {
		for _, text := range f.topic.texts() {
			if text, ok := strings.CutPrefix(text, user+":"); ok {
				texts = append(texts, text)
			}
		}
		return texts
	}
	for i := range 3 {
		f.expect(f.send("b", fmt.Sprint(i)), "ok")
		testenv.Eventually(t, 30*time.Second, "b's message is published", func() string {
			if got := published("b"); len(got) <= i {
				return fmt.Sprint(got)
			}
			return ""
		})
	}
	f.topic.failing(nil)
	testenv.Eventually(t, time.Minute, "a's first message is published", func() string {
		if !slices.Contains(published("a"), "0000") {
			return fmt.Sprint(len(published("a")))
		}
		return ""
	})
	testenv.Eventually(t, 30*time.Second, "the outbox is empty", func() string {
		var n int
		if err := f.db.Write.QueryRow("SELECT count(*) FROM notify_outbox").Scan(&n); err != nil || n != 0 {
			return fmt.Sprint(n, err)
		}
		return ""
	})
	list := published("a")
	if list = list[slices.Index(list, "0000"):]; len(list) != relaySlice+10 || !slices.IsSorted(list) {
		t.Errorf("%d messages from the first one on, in their order: %v", len(list), slices.IsSorted(list))
	}
}

// TestAMessageThatStaysDoesNotFillTheOutbox, however many have passed it.
func TestAMessageThatStaysDoesNotFillTheOutbox(t *testing.T) {
	f := start(t, true)
	f.outboxMax = 4
	f.configure("a", 100, 1)
	f.configure("b", 100, 1)
	f.topic.failing(func(m notify.Message) error {
		if m.UserID == "a" {
			return errors.New("too large")
		}
		return nil
	})
	f.expect(f.send("a", "stays"), "ok")
	for i := range 10 {
		f.expect(f.send("b", fmt.Sprint(i)), "ok")
		if n, _ := f.relay(); n != 1 {
			t.Fatalf("%d messages were published", n)
		}
		if _, err := f.relay(); err == nil {
			t.Fatal("the message that stays was published")
		}
		if n := f.waiting.Load(); n != 1 {
			t.Errorf("%d wait", n)
		}
	}
	for i := range 3 {
		f.expect(f.send("a", fmt.Sprint(i)), "ok")
	}
	_, _ = f.relay()
	f.expect(f.send("b", "one too many"), "the broker is unavailable: too many messages")
}

// TestUsersWhoAreBehindAreTriedLessAndLess while others go on; not if nothing goes on.
func TestUsersWhoAreBehindAreTriedLessAndLess(t *testing.T) {
	bad := errors.New("not confirmed")
	both := []notify.Message{message("a", "1"), message("b", "1")}
	var b behind
	waits := func(results ...error) time.Duration {
		b.until = time.Time{}
		b.expire()
		b.confirmed([]int64{1, 2}, both, results)
		return b.wait
	}
	for _, want := range []time.Duration{5, 10, 15, 20, 25, 30, 30} {
		if got := waits(bad, nil); got != want*time.Second {
			t.Errorf("some are published: %v, want %v s", got, want)
		}
	}
	waits(bad, bad)
	if got := waits(bad, bad); got != behindFor {
		t.Errorf("none is published: %v", got)
	}
	waits(bad, nil)
	waits(nil, nil)
	if got := waits(bad, nil); got != behindFor {
		t.Errorf("after a success: %v", got)
	}
}

func TestOneRelayPublishesAtATime(t *testing.T) {
	f := start(t, true)
	other := open(t, f.url, true)
	f.configure("a", 100, 1)
	f.expect(f.send("a", "1"), "ok")
	f.topic.failing(func(notify.Message) error {
		if n, err := other.relay(); n != 0 || err != nil {
			t.Errorf("the other relay took %d messages: %v", n, err)
		}
		return nil
	})
	if n, err := f.relay(); n != 1 || err != nil {
		t.Errorf("%d messages, %v", n, err)
	}
	if len(other.topic.texts()) != 0 {
		t.Error("both relays published")
	}
}

// TestMessagesOfAnOutboxThatIsNotUsedAnyMoreArePublished: gateways that had it have ended, and were started again
// without it.
func TestMessagesOfAnOutboxThatIsNotUsedAnyMoreArePublished(t *testing.T) {
	f := start(t, true)
	f.configure("a", 10, 1)
	f.expect(f.send("a", "1"), "ok")
	direct := open(t, f.url, false)
	ctx, cancel := context.WithCancel(t.Context())
	var relay sync.WaitGroup
	relay.Go(func() { direct.Relay(ctx) })
	defer relay.Wait()
	defer cancel()
	for _, want := range []string{"a:1", "a:1 a:2"} { // what was there at first, and what another gateway leaves later
		testenv.Eventually(t, 3*relayOthers, "the messages are published", func() string {
			if got := strings.Join(direct.topic.texts(), " "); got != want {
				return "published: " + got
			}
			return ""
		})
		f.expect(f.send("a", "2"), "ok")
	}
}

func TestAFullOutboxRefuses(t *testing.T) {
	f := start(t, true)
	f.outboxMax = 2
	f.configure("a", 100, 1)
	f.topic.failing(func(notify.Message) error { return errors.New("no broker") })
	for i := range 2 {
		f.expect(f.send("a", fmt.Sprint(i)), "ok")
	}
	if _, err := f.relay(); err == nil {
		t.Error("a relay without a broker reports no error")
	}
	f.expect(f.send("a", "2"), "the broker is unavailable: too many messages")
	if n, _, _ := f.count("a"); n != 2 {
		t.Errorf("%d are counted", n)
	}
	f.topic.failing(nil)
	if err := relayAll(f); err != nil {
		t.Fatal(err)
	}
	f.expect(f.send("a", "3"), "ok")
}

func TestBlocksAndSendsNeverShareUnits(t *testing.T) {
	f := start(t, false)
	f.configure("u", 10, 1)
	block := func(size, from, to int64) Block {
		t.Helper()
		b, err := f.Reserve(t.Context(), "u", func(limit int64) int64 { return size })
		if err != nil || b.From != from || b.To != to || b.RateLimit != 10 {
			t.Errorf("%+v, %v", b, err)
		}
		return b
	}
	b := block(3, 0, 3)
	if b.Rest <= 50*time.Second || b.Rest > time.Minute {
		t.Errorf("the window lasts %v", b.Rest)
	}
	f.expect(f.send("u", "1"), "ok 6") // the fourth unit
	block(3, 4, 7)
	block(100, 7, 10)
	f.expect(f.send("u", "2"), "limited")
	block(1, 10, 10)
	f.elapse("u", time.Minute)
	next := block(1, 0, 1)
	if next.StartUs <= b.StartUs || next.Version != b.Version {
		t.Errorf("%+v, after %+v", next, b)
	}
	if _, err := f.Reserve(t.Context(), "nobody", func(int64) int64 { return 1 }); !errors.Is(err, notify.ErrNoConfig) {
		t.Errorf("%v", err)
	}
}

func TestSyncRaisesCountsOfTheSameWindowOnly(t *testing.T) {
	f := start(t, false)
	var counts []Count
	for _, user := range []string{"up", "down", "window", "changed", "gone"} {
		f.configure(user, 10, 1)
		b, err := f.Reserve(t.Context(), user, func(int64) int64 { return 8 })
		if err != nil {
			t.Fatal(err)
		}
		counts = append(counts, Count{user, 3, b.StartUs, b.Version})
	}
	if _, err := f.db.Write.Exec("UPDATE rate_limit_store SET current_count = 5 WHERE user_id = 'down'"); err != nil {
		t.Fatal(err)
	}
	f.elapse("window", time.Second)
	f.configure("changed", 10, 1)
	if _, err := f.db.Write.Exec("DELETE FROM rate_limit_store WHERE user_id = 'gone'"); err != nil {
		t.Fatal(err)
	}
	stale := map[string]bool{}
	if err := f.Sync(t.Context(), counts, func(user string, _ int64) { stale[user] = true },
		func(c Count) { t.Errorf("%+v is held", c) }); err != nil {
		t.Fatal(err)
	}
	for user, want := range map[string]int64{"up": 3, "down": 5, "window": 0, "changed": 0} {
		if n, _, _ := f.count(user); n != want {
			t.Errorf("%s has count %d, want %d", user, n, want)
		}
	}
	if len(stale) != 2 || !stale["changed"] || !stale["gone"] {
		t.Errorf("stale: %v", stale)
	}
}

// TestSyncPassesOverRowsThatOthersHold: while one row is held, as by a gateway that waits for Kafka, users of
// other rows get units, and their counts are written.
func TestSyncPassesOverRowsThatOthersHold(t *testing.T) {
	f := start(t, false)
	var counts []Count
	for _, user := range []string{"a", "held", "z"} {
		f.configure(user, 10, 1)
		b, err := f.Reserve(t.Context(), user, func(int64) int64 { return 2 })
		if err != nil {
			t.Fatal(err)
		}
		counts = append(counts, Count{user, 2, b.StartUs, b.Version})
	}
	holder, err := f.lock(t.Context(), "held")
	if err != nil {
		t.Fatal(err)
	}
	defer holder.tx.Rollback()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	synced := make(chan error, 1)
	go func() {
		synced <- f.Sync(ctx, counts, func(user string, _ int64) { t.Errorf("%s counts as changed", user) },
			func(c Count) {
				if c != counts[1] {
					t.Errorf("%+v is not written", c)
				}
			})
	}()
	time.Sleep(100 * time.Millisecond)
	soon, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if b, err := f.Reserve(soon, "a", func(int64) int64 { return 2 }); err != nil || b.From != 2 {
		t.Errorf("a user beside the one whose row is held gets %+v: %v", b, err)
	}
	if err := <-synced; err != nil {
		t.Error(err)
	}
	if n, _, _ := f.count("z"); n != 2 {
		t.Errorf("a user beside the one whose row is held has count %d, want 2", n)
	}
}

// TestVersionsGrow: also where two administrators save at the same time, or a row was
// deleted.
func TestVersionsGrow(t *testing.T) {
	f := start(t, false)
	last := int64(0)
	for range 20 {
		var wait sync.WaitGroup
		for range 2 {
			wait.Go(func() { f.configure("u", 1, 1) })
		}
		wait.Wait()
		v, err := f.Version(t.Context(), "u")
		if err != nil || v <= last {
			t.Fatalf("version %d after %d, %v", v, last, err)
		}
		last = v
	}
	if _, err := f.db.Write.Exec("DELETE FROM rate_limit_store"); err != nil {
		t.Fatal(err)
	}
	f.configure("u", 1, 1)
	if v, err := f.Version(t.Context(), "u"); err != nil || v <= last {
		t.Errorf("version %d after %d, %v", v, last, err)
	}
}

// TestTheClockIsReadUnderTheLock: a send that has waited for the lock does not go by an
// instant from before its wait.
func TestTheClockIsReadUnderTheLock(t *testing.T) {
	f := start(t, false)
	f.configure("u", 5, 1)
	f.elapse("u", 2*time.Minute)
	other := open(t, f.url, false)
	l, err := other.lock(t.Context(), "u")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan string)
	go func() { done <- f.send("u", "1") }()
	time.Sleep(300 * time.Millisecond)
	l.row.Count = 1
	if _, err := l.tx.Session(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	// The other begins the window 250 ms later than the send has asked for the lock.
	l.row.StartUs += 250_000
	if err := l.commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.expect(<-done, "ok 3")
	var startUs int64
	if _, err := f.db.Row(t.Context(), f.db.Read, "", sqldb.Query{Text: "SELECT last_refresh_time FROM rate_limit_store"},
		f.db.Dialect.Into(&startUs)); err != nil || startUs != l.row.StartUs {
		t.Errorf("the window begins at %d instead of %d: %v", startUs, l.row.StartUs, err)
	}
}

func TestADatabaseThatIsAwayIsUnavailable(t *testing.T) {
	db := testenv.StartDatabase(t, testenv.Postgres)
	f := open(t, db.URL(), false)
	if err := f.Ping(t.Context()); err == nil || !strings.Contains(err.Error(), "store is unavailable") {
		t.Errorf("a ping without a schema: %v", err)
	}
	if _, err := f.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.configure("u", 5, 1)
	db.Kill()
	f.expect(f.send("u", "1"), "the store is unavailable")
	if _, err := f.Configure(t.Context(), notify.Config{UserID: "u", RateLimit: 1, Minutes: 1}); err == nil {
		t.Error("saved without a database")
	}
	db.Restart()
	testenv.Eventually(t, 10*time.Second, "send again", func() string {
		if got := f.send("u", "2"); got != "ok 4" {
			return got
		}
		return ""
	})
}

// TestADatabaseThatTakesNoWritesIsUnavailable, though it answers questions: it has become a replica.
func TestADatabaseThatTakesNoWritesIsUnavailable(t *testing.T) {
	f := start(t, false)
	if err := f.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(f.url)
	if err != nil {
		t.Fatal(err)
	}
	name := strings.TrimPrefix(u.Path, "/")
	if _, err := f.db.Write.Exec("ALTER DATABASE " + name + " SET default_transaction_read_only = on"); err != nil {
		t.Fatal(err)
	}
	if err := open(t, f.url, false).Ping(t.Context()); err == nil || !strings.Contains(err.Error(), "read-only") {
		t.Errorf("a ping returns %v", err)
	}
}

// TestBehindAPooler: in transaction mode, where sessions are shared.
func TestBehindAPooler(t *testing.T) {
	f := start(t, true)
	pooler := testenv.StartPgBouncer(t, testenv.SharedDatabase(t, testenv.Postgres), testenv.PoolTransaction)
	p := open(t, pooler.URLOf(f.url), true)
	p.configure("u", 3, 1)
	p.expect(p.send("u", "1"), "ok 2")
	b, err := p.Reserve(t.Context(), "u", func(int64) int64 { return 1 })
	if err != nil || b.From != 1 || b.To != 2 {
		t.Errorf("%+v, %v", b, err)
	}
	if err := p.Sync(t.Context(), []Count{{"u", 2, b.StartUs, b.Version}},
		func(string, int64) { t.Error("stale") }, func(Count) { t.Error("held") }); err != nil {
		t.Error(err)
	}
	if n, _, _ := f.count("u"); n != 2 {
		t.Errorf("%d are counted", n)
	}
	if err := relayAll(p); err != nil || len(p.topic.texts()) != 1 {
		t.Errorf("%v, %v", p.topic.texts(), err)
	}
}

func TestOtherDatabasesAreRefused(t *testing.T) {
	if _, err := Open(Config{Database: sqldb.Config{URL: "sqlite::memory:"}}); err == nil ||
		!strings.Contains(err.Error(), "PostgreSQL") {
		t.Errorf("%v", err)
	}
}
