package notify

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/headgate-rls/headgate/notify"
	"github.com/headgate-rls/headgate/test/random"
	"github.com/headgate-rls/headgate/test/testenv"
)

// A load sends messages of several users to all gateways until it ends, and keeps what was
// accepted.
type load struct {
	s     *stack
	limit int
	stop  atomic.Bool
	wait  sync.WaitGroup

	mu       sync.Mutex
	accepted map[string][]string // texts by user; of one that sends alone, in their order
	statuses map[int]int
}

const (
	loneUsers = 4 // each sends one message after the other
	crowd     = 8 // how many send for the user "crowd" at the same time
)

// startLoad configures the users and begins.
func (s *stack) startLoad(limit int) *load {
	s.t.Helper()
	l := &load{s: s, limit: limit, accepted: map[string][]string{}, statuses: map[int]int{}}
	for i := range loneUsers {
		s.gateways[0].configure(s.t, fmt.Sprint("lone", i), limit, 60)
	}
	s.gateways[0].configure(s.t, "crowd", limit, 60)
	for i := range loneUsers {
		l.wait.Go(func() { l.run(fmt.Sprint("lone", i), i) })
	}
	for i := range crowd {
		l.wait.Go(func() { l.run("crowd", i) })
	}
	return l
}

func (l *load) run(user string, worker int) {
	for n := 0; !l.stop.Load(); n++ {
		text := fmt.Sprintf("%s/%d/%06d", user, worker, n)
		a := l.s.gateways[(worker+n)%len(l.s.gateways)].send(user, text)
		l.mu.Lock()
		l.statuses[a.status]++
		if a.status == 200 {
			l.accepted[user] = append(l.accepted[user], text)
		}
		l.mu.Unlock()
		pause := 20 * time.Millisecond
		if a.status == 200 {
			pause = 2 * time.Millisecond
		}
		time.Sleep(pause) // the servers need the machine, too
	}
}

// count returns how many messages were accepted.
func (l *load) count() (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, list := range l.accepted {
		n += len(list)
	}
	return n
}

// advances waits until more messages are accepted.
func (l *load) advances(by int, within time.Duration) {
	l.s.t.Helper()
	from := l.count()
	testenv.Eventually(l.s.t, within, "more messages are accepted", func() string {
		if n := l.count() - from; n < by {
			return fmt.Sprintf("%d of %d, answers %v", n, by, l.seen())
		}
		return ""
	})
}

func (l *load) seen() map[int]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	seen := map[int]int{}
	for k, v := range l.statuses {
		seen[k] = v
	}
	return seen
}

// check ends the load and holds what was accepted to the invariants: no user has more than
// the limit, the row knows of every unit, every message is in the topic, and a lone user's
// are in their order.
func (l *load) check() {
	t := l.s.t
	t.Helper()
	l.stop.Store(true)
	l.wait.Wait()
	t.Logf("answers %v", l.seen())
	wanted := map[string]bool{}
	for user, list := range l.accepted {
		taken, err := strconv.Atoi(
			l.s.query("SELECT GREATEST(current_count, reserved_count) FROM rate_limit_store WHERE user_id = '" + user + "'"))
		if len(list) > l.limit || err != nil || taken < len(list) || taken > l.limit {
			t.Errorf("%s: %d messages were accepted of %d, the row has %d: %v", user, len(list), l.limit, taken, err)
		}
		for _, text := range list {
			wanted[text] = true
		}
	}
	found := map[string]int{}
	order := map[string][]string{}
	for _, m := range l.s.consumed(wanted, 30*time.Second) {
		if found[m.Text]++; found[m.Text] == 1 && strings.HasPrefix(m.UserID, "lone") {
			order[m.UserID] = append(order[m.UserID], m.Text)
		}
	}
	repeated := 0
	for text := range wanted {
		if found[text] == 0 {
			t.Errorf("%s was accepted and is not in the topic", text)
		} else if found[text] > 1 {
			repeated++
		}
	}
	for user, list := range order {
		if !slices.IsSorted(list) {
			t.Errorf("the messages of %s are not in their order", user)
		}
	}
	t.Logf("%d accepted, %d records, %d repeated", len(wanted), len(found), repeated)
}

// faultStack has servers that the test may end.
func faultStack(t *testing.T, m mode, own string) *stack {
	t.Helper()
	s := newStack(t, m)
	switch own {
	case "kafka":
		s.kafka = testenv.StartKafka(t)
	case "postgres":
		s.db = testenv.StartDatabase(t, testenv.Postgres)
		s.database = s.db.CreateDatabase("notify")
	}
	return s
}

// resumesWithin is how soon the relay goes on once Kafka confirms what others publish.
const resumesWithin = 5 * time.Second

// TestFaultOfKafka: in outbox mode an outage costs no request, and the relay goes on soon after
// one that lasts longer than it tries to publish a message; in direct mode, none that was
// accepted.
func TestFaultOfKafka(t *testing.T) {
	longForm(t)
	for _, m := range []mode{modes[0], modes[3]} {
		t.Run(m.name, func(t *testing.T) {
			s := faultStack(t, m, "kafka")
			s.start(2)
			l := s.startLoad(100_000)
			l.advances(50, 20*time.Second)
			s.kafka.Kill()
			if m.outbox {
				l.advances(50, 20*time.Second)
				s.oldestWaits(10)
			} else {
				time.Sleep(time.Second)
			}
			s.kafka.Restart()
			s.kafkaConfirms()
			if m.outbox {
				s.relayGoesOn(resumesWithin)
			}
			l.advances(50, 30*time.Second)
			if m.outbox && l.seen()[503] > 0 {
				t.Errorf("an outage of Kafka cost requests: %v", l.seen())
			}
			l.check()
		})
	}
}

// oldestWaits waits until the oldest message in the outbox has been there for some seconds.
func (s *stack) oldestWaits(seconds int) {
	s.t.Helper()
	testenv.Eventually(s.t, 60*time.Second, "a message waits long", func() string {
		old := s.query(fmt.Sprintf("SELECT COALESCE(max(clock_timestamp() - accepted_at) > %d * interval '1 second', "+
			"false) FROM notify_outbox", seconds))
		if old != "t" {
			return "none does"
		}
		return ""
	})
}

// kafkaConfirms waits until Kafka confirms what a new client publishes.
func (s *stack) kafkaConfirms() {
	s.t.Helper()
	c, err := kgo.NewClient(kgo.SeedBrokers(s.kafka.Addr), kgo.DefaultProduceTopic(s.topic))
	if err != nil {
		s.t.Fatal(err)
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(s.t.Context(), 60*time.Second)
	defer cancel()
	probe := notify.Message{ID: "probe", UserID: "probe", Text: "probe"}
	if err := c.ProduceSync(ctx, &kgo.Record{Key: []byte(probe.UserID), Value: probe.Encode()}).FirstErr(); err != nil {
		s.t.Fatalf("Kafka is not back: %v", err)
	}
}

// relayGoesOn waits until the oldest message of the outbox has left it.
func (s *stack) relayGoesOn(within time.Duration) {
	s.t.Helper()
	oldest := func() string { return s.query("SELECT COALESCE(min(id), 0) FROM notify_outbox") }
	first := oldest()
	testenv.Eventually(s.t, within, "the relay goes on", func() string {
		if oldest() == first {
			return "the oldest message in the outbox is still number " + first
		}
		return ""
	})
}

func TestFaultOfPostgres(t *testing.T) {
	longForm(t)
	for _, m := range []mode{modes[1], modes[2]} {
		t.Run(m.name, func(t *testing.T) {
			s := faultStack(t, m, "postgres")
			s.start(2)
			l := s.startLoad(2000)
			l.advances(50, 20*time.Second)
			s.db.Restart()
			l.advances(50, 30*time.Second)
			l.check()
		})
	}
}

// TestFaultOfRedis: killed and started empty, frozen, and emptied. The limit is reached, so
// that a unit that is given out twice shows.
func TestFaultOfRedis(t *testing.T) {
	for _, c := range []struct {
		name  string
		fault func(*load, *testenv.RedisServer)
	}{
		{"killed", func(l *load, r *testenv.RedisServer) { r.Kill(); l.advances(20, 20*time.Second); r.Restart() }},
		{"frozen", func(l *load, r *testenv.RedisServer) { r.Pause(); l.advances(20, 20*time.Second); r.Resume() }},
		{"emptied", func(l *load, r *testenv.RedisServer) { l.s.redisClient().FlushAll(l.s.t.Context()) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.name != "killed" {
				longForm(t)
			}
			s := newStack(t, modes[2])
			server := s.ownRedis(modes[2])
			s.start(3)
			l := s.startLoad(150)
			l.advances(60, 20*time.Second)
			c.fault(l, server)
			l.fills()
			if c.name != "emptied" && !strings.Contains(s.logs(), downText) {
				t.Error("no gateway says that it falls back")
			}
			l.check()
		})
	}
}

// TestFaultOfARedisMaster: its replica becomes the master under load, and lacks the last that
// the old one has answered.
func TestFaultOfARedisMaster(t *testing.T) {
	longForm(t)
	s := newStack(t, modes[0])
	sentinel := testenv.StartRedisSentinel(t)
	s.redis = "redis+sentinel://" + strings.Join(sentinel.SentinelAddrs, ",") + "/" + sentinel.MasterName
	s.start(3)
	l := s.startLoad(300)
	l.advances(60, 20*time.Second)
	old := sentinel.Master()
	old.Kill()
	young := sentinel.WaitNewMaster(old)
	testenv.Eventually(t, 20*time.Second, "the gateways decide in the new master", func() string {
		if n, err := young.Client().Exists(t.Context(), "RateLimiterCache:crowd").Result(); n == 0 || err != nil ||
			!strings.Contains(s.logs(), "Redis answers again") {
			return fmt.Sprintf("%d hashes, %v", n, err)
		}
		return ""
	})
	l.fills()
	l.check()
}

// logs returns what all gateways have logged.
func (s *stack) logs() (all string) {
	for _, g := range s.gateways {
		all += g.Log()
	}
	return all
}

// fills waits until every window is full, and a while for who would get more.
func (l *load) fills() {
	l.s.t.Helper()
	testenv.Eventually(l.s.t, 60*time.Second, "every window is full", func() string {
		n := l.s.query("SELECT count(*) FROM rate_limit_store WHERE GREATEST(current_count, reserved_count) < rate_limit")
		if n != "0" {
			return n + " are not"
		}
		return ""
	})
	time.Sleep(300 * time.Millisecond)
}

// TestFaultOfAGateway: one of three is killed repeatedly, between publish and commit
// among others.
func TestFaultOfAGateway(t *testing.T) {
	longForm(t)
	for _, m := range []mode{modes[0], modes[1], modes[2]} {
		t.Run(m.name, func(t *testing.T) {
			s := newStack(t, m).start(3)
			l := s.startLoad(400)
			l.advances(40, 20*time.Second)
			s.gateways[2].Kill()
			l.advances(40, 20*time.Second)
			s.gateways[1].Kill()
			l.advances(40, 20*time.Second)
			l.check()
		})
	}
}

// TestFaultBetweenPublishAndCommit: a gateway dies after it has published a message, while the
// database counts it. Without the outbox the message is in the topic and may not be counted; with
// it, it is in the topic only if it is counted.
func TestFaultBetweenPublishAndCommit(t *testing.T) {
	for _, m := range modes[:2] {
		t.Run(m.name, func(t *testing.T) {
			s := newStack(t, m).start(2)
			s.gateways[0].configure(t, "u", 10, 60)
			s.query(`CREATE FUNCTION hold() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(60); RETURN NEW; END'`)
			s.query(`CREATE TRIGGER hold BEFORE UPDATE ON rate_limit_store FOR EACH ROW EXECUTE FUNCTION hold()`)
			done := make(chan answer)
			go func() { done <- s.gateways[0].send("u", "1") }()
			const held = " FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'PgSleep'"
			testenv.Eventually(t, 20*time.Second, "the message is being counted", func() string {
				if n := s.query("SELECT count(*)" + held); n != "1" {
					return n
				}
				return ""
			})
			s.gateways[0].Kill()
			if a := <-done; a.status != 0 {
				t.Errorf("the dead gateway answers %+v", a)
			}
			s.query("SELECT pg_terminate_backend(pid)" + held)
			s.query("DROP TRIGGER hold ON rate_limit_store")
			a := s.gateways[1].send("u", "2")
			a.expect(t, 200, map[string]any{"remaining": 9})
			records := 0
			for _, r := range s.consumed(map[string]bool{"2": true}, 20*time.Second) {
				if r.Text == "1" {
					records++
				}
			}
			if want := map[bool]int{false: 1, true: 0}[m.outbox]; records != want {
				t.Errorf("the message that was not counted is in the topic %d times, want %d", records, want)
			}
		})
	}
}

// longForm skips a test that takes a minute or more in make test.
func longForm(t *testing.T) {
	t.Helper()
	if random.Times(0, 1) == 0 {
		t.Skip("runs in make chaos")
	}
}
