package kafka

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
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

// handler keeps the texts that it has handled. What fail returns an error for is not.
type handler struct {
	mu   sync.Mutex
	done []string
	fail func(notify.Message) error
}

func (h *handler) Handle(_ context.Context, m notify.Message) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.fail != nil {
		if err := h.fail(m); err != nil {
			return err
		}
	}
	h.done = append(h.done, m.Text)
	return nil
}

func (h *handler) texts() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.done)
}

// lacks returns which of the texts were not handled; "" if none.
func (h *handler) lacks(want ...string) string {
	done := h.texts()
	for _, text := range want {
		if !slices.Contains(done, text) {
			return fmt.Sprintf("%q was not handled, but %d others", text, len(done))
		}
	}
	return ""
}

// running is a consumer at work.
type running struct {
	*Consumer
	*handler
	log  *testenv.Log
	stop func() // leaves the group; may be called twice
}

func consume(t *testing.T, topic Topic, deadLetter string, fail func(notify.Message) error) *running {
	t.Helper()
	h := &handler{fail: fail}
	r := consumeBy(t, topic, deadLetter, h)
	r.handler = h
	return r
}

func consumeBy(t *testing.T, topic Topic, deadLetter string, h Handler) *running {
	t.Helper()
	r := &running{log: new(testenv.Log)}
	var err error
	r.Consumer, err = NewConsumer(ConsumerConfig{
		Topic: topic, Group: topic.Name + "-group", DeadLetter: deadLetter, Handler: h,
		Log: slog.New(slog.NewTextHandler(r.log, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.EnsureTopic(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var run sync.WaitGroup
	run.Go(func() { r.Run(ctx) })
	r.stop = sync.OnceFunc(func() { cancel(); run.Wait(); r.Close() })
	t.Cleanup(r.stop)
	return r
}

// published publishes a message for each text, in their order, all of one user.
func published(t *testing.T, p *Publisher, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if err := p.Publish(t.Context(), []notify.Message{message("u", text)})[0]; err != nil {
			t.Fatal(err)
		}
	}
}

// raw writes a record that is no message, and returns where it is.
func raw(t *testing.T, topic Topic, value string) *kgo.Record {
	t.Helper()
	c, err := kgo.NewClient(kgo.SeedBrokers(topic.Brokers...), kgo.DefaultProduceTopic(topic.Name),
		kgo.ProducerBatchMaxBytes(1<<20))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	r, err := c.ProduceSync(t.Context(), &kgo.Record{Key: []byte("u"), Value: []byte(value),
		Headers: []kgo.RecordHeader{{Key: "origin", Value: []byte("test")}}}).First()
	if err != nil {
		t.Fatal(err)
	}
	return r
}

const soon = 40 * time.Second

// TestMalformedRecordsAreSkipped: the log says where they are, and shows their beginning only.
func TestMalformedRecordsAreSkipped(t *testing.T) {
	topic := newTopic(testenv.SharedKafka(t))
	p := newPublisher(t, topic, 10*time.Second)
	published(t, p, "before")
	bad := raw(t, topic, "hello"+strings.Repeat("x", 5000))
	published(t, p, "after")
	r := consume(t, topic, "", nil)
	testenv.Eventually(t, soon, "the others are handled", func() string { return r.lacks("before", "after") })
	line := fmt.Sprintf(`msg="a message is skipped" why=malformed topic=%s partition=%d offset=%d bytes=5005 `+
		`begins=hellox`, topic.Name, bad.Partition, bad.Offset)
	if l := r.log.String(); !strings.Contains(l, line) || len(l) > 2000 {
		t.Errorf("the log has %q, want %q", l, line)
	}
	if s, n := r.skipped.Load(), r.handled.Load(); s != 1 || n != 2 {
		t.Errorf("%+v", s)
	}
}

// lettersOf returns so many dead letters.
func lettersOf(t *testing.T, topic Topic, dead string, n int) (letters []*kgo.Record) {
	t.Helper()
	c, err := kgo.NewClient(kgo.SeedBrokers(topic.Brokers...), kgo.ConsumeTopics(dead),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	for len(letters) < n && ctx.Err() == nil {
		letters = append(letters, c.PollFetches(ctx).Records()...)
	}
	if len(letters) != n {
		t.Fatalf("%d dead letters", len(letters))
	}
	return letters
}

func headersOf(r *kgo.Record) map[string]string {
	m := map[string]string{}
	for _, h := range r.Headers {
		m[h.Key] = string(h.Value)
	}
	return m
}

// TestDeadLetters: what is skipped is in their topic, with the reason and its place.
func TestDeadLetters(t *testing.T) {
	topic := newTopic(testenv.SharedKafka(t))
	p := newPublisher(t, topic, 10*time.Second)
	bad := raw(t, topic, "hello")
	published(t, p, "refused", "good")
	dead := topic.Name + "-dead"
	r := consume(t, topic, dead, func(m notify.Message) error {
		if m.Text == "refused" {
			return fmt.Errorf("%w: 410 Gone", notify.ErrGiveUp)
		}
		return nil
	})
	testenv.Eventually(t, soon, "the good one is handled", func() string { return r.lacks("good") })
	letters := lettersOf(t, topic, dead, 2)
	h := headersOf(letters[0])
	if string(letters[0].Value) != "hello" || string(letters[0].Key) != "u" || h["origin"] != "test" ||
		!strings.Contains(h["reason"], "not a message") ||
		h["from"] != fmt.Sprintf("%s/%d/%d", topic.Name, bad.Partition, bad.Offset) {
		t.Errorf("%s %v", letters[0].Value, h)
	}
	if m, err := notify.Decode(letters[1].Value); err != nil || m.Text != "refused" ||
		!strings.Contains(headersOf(letters[1])["reason"], "410 Gone") {
		t.Errorf("%s %v", letters[1].Value, headersOf(letters[1]))
	}
}

// TestARecordThatIsTooLargeForTheDeadLettersStopsNothing: producers of others fill a record up to the broker's
// bound, and a dead letter has headers beside it. Or the bound of the topic is higher.
func TestARecordThatIsTooLargeForTheDeadLettersStopsNothing(t *testing.T) {
	topic := newTopic(testenv.SharedKafka(t))
	p := newPublisher(t, topic, 10*time.Second)
	large := strings.Repeat("x", 1<<20-200)
	bad := raw(t, topic, large)
	published(t, p, "good")
	dead := topic.Name + "-dead"
	r := consume(t, topic, dead, func(notify.Message) error { return nil })
	testenv.Eventually(t, soon, "the good one is handled", func() string { return r.lacks("good") })
	letters := lettersOf(t, topic, dead, 1)
	h := headersOf(letters[0])
	if v := string(letters[0].Value); v != large[:letterBytes] || string(letters[0].Key) != "u" ||
		h["cut"] != fmt.Sprint(len(large)) || !strings.Contains(h["reason"], "not a message") ||
		h["from"] != fmt.Sprintf("%s/%d/%d", topic.Name, bad.Partition, bad.Offset) {
		t.Errorf("%d bytes, %v", len(v), h)
	}
	if n := r.skipped.Load(); n != 1 {
		t.Errorf("%d skipped", n)
	}
}

// TestWhatWasNotHandledIsNotCommitted: the next consumer of the group begins with it.
func TestWhatWasNotHandledIsNotCommitted(t *testing.T) {
	topic := newTopic(testenv.SharedKafka(t))
	published(t, newPublisher(t, topic, 10*time.Second), "1", "2", "3")
	first := consume(t, topic, "", func(m notify.Message) error {
		if m.Text == "2" {
			return errors.New("not yet")
		}
		return nil
	})
	testenv.Eventually(t, soon, "the second was tried twice", func() string {
		if n := first.retried.Load(); n < 2 {
			return fmt.Sprint(n)
		}
		return ""
	})
	first.stop()
	if got := fmt.Sprint(first.texts()); got != "[1]" {
		t.Errorf("handled: %s", got)
	}
	second := consume(t, topic, "", nil)
	testenv.Eventually(t, soon, "the rest is handled", func() string { return second.lacks("2", "3") })
	if got := fmt.Sprint(second.texts()); got != "[2 3]" {
		t.Errorf("handled by the second: %s", got)
	}
}

// holder holds the messages whose text is "hold" until their context ends or all are let go, and
// brings them to their end then, as it has begun.
type holder struct {
	handler
	held    atomic.Int32
	cut     atomic.Int32 // contexts that have ended meanwhile
	release chan struct{}
}

func (h *holder) Handle(ctx context.Context, m notify.Message) error {
	if strings.HasPrefix(m.Text, "hold") {
		h.held.Add(1)
		select {
		case <-ctx.Done():
			h.cut.Add(1)
		case <-h.release:
		}
	}
	return h.handler.Handle(ctx, m)
}

// TestAMessageThatHangsDelaysItsPartitionOnly: it is handled once, for as long as it takes, and
// what is in other partitions is handled meanwhile.
func TestAMessageThatHangsDelaysItsPartitionOnly(t *testing.T) {
	topic := newTopic(testenv.SharedKafka(t))
	topic.Partitions = 8
	h := &holder{release: make(chan struct{})}
	r := consumeBy(t, topic, "", h)
	p := newPublisher(t, topic, 10*time.Second)
	published(t, p, "hold", "behind") // of user u
	testenv.Eventually(t, soon, "the first message hangs", func() string {
		if h.held.Load() == 0 {
			return "not yet"
		}
		return ""
	})
	for n := range 5 {
		var texts []string
		for user := range 30 { // some of them share u's partition
			m := message(fmt.Sprint("user", user), fmt.Sprintf("%d-%d", n, user))
			if err := p.Publish(t.Context(), []notify.Message{m})[0]; err != nil {
				t.Fatal(err)
			}
			texts = append(texts, m.Text)
		}
		testenv.Eventually(t, soon, "most of the others are handled", func() string {
			done := 0
			for _, text := range texts {
				if h.lacks(text) == "" {
					done++
				}
			}
			if done < len(texts)/2 {
				return fmt.Sprint(done)
			}
			return ""
		})
	}
	if held, cut := h.held.Load(), h.cut.Load(); held != 1 || cut != 0 {
		t.Errorf("the message that hangs was handled %d times, and cut off %d times", held, cut)
	}
	if h.lacks("behind") == "" {
		t.Error("a message was handled before the one that is before it")
	}
	close(h.release)
	testenv.Eventually(t, soon, "all are handled", func() string { return h.lacks("hold", "behind") })
	testenv.Eventually(t, soon, "all are handled", func() string {
		if n := r.handled.Load(); n != 152 {
			return fmt.Sprint(n)
		}
		return ""
	})
}

// TestAPartitionChangesHandsBetweenMessages: the message that is being handled comes to its end
// before the next member begins, and nobody handles it again. The same holds at the end of a member.
func TestAPartitionChangesHandsBetweenMessages(t *testing.T) {
	topic := newTopic(testenv.SharedKafka(t))
	topic.Partitions = 4
	first := &holder{release: make(chan struct{})}
	r := consumeBy(t, topic, "", first)
	p := newPublisher(t, topic, 10*time.Second)
	var all []string
	for user := range 40 {
		for _, text := range []string{"hold-%d", "next-%d"} {
			m := message(fmt.Sprint("user", user), fmt.Sprintf(text, user))
			if err := p.Publish(t.Context(), []notify.Message{m})[0]; err != nil {
				t.Fatal(err)
			}
			all = append(all, m.Text)
		}
	}
	testenv.Eventually(t, soon, "every partition has a message that is being handled", func() string {
		if n := first.held.Load(); n != 4 {
			return fmt.Sprint(n)
		}
		return ""
	})
	second := consume(t, topic, "", nil)
	testenv.Eventually(t, soon, "the second handles some", func() string {
		if len(second.texts()) == 0 {
			return "none"
		}
		return ""
	})
	if first.cut.Load() == 0 {
		t.Error("no partition has left the first")
	}
	r.stop() // the others leave it
	testenv.Eventually(t, soon, "all are handled", func() string {
		both := handler{done: append(first.texts(), second.texts()...)}
		return both.lacks(all...)
	})
	if n := len(first.texts()) + len(second.texts()); n != len(all) {
		t.Errorf("%d messages were handled, want %d", n, len(all))
	}
}

// TestTwoConsumersShareTheTopic: a second one gets some of the partitions, and gives them back
// when it leaves. Every message is handled, and in a partition in order.
func TestTwoConsumersShareTheTopic(t *testing.T) {
	topic := newTopic(testenv.SharedKafka(t))
	p := newPublisher(t, topic, 10*time.Second)
	var all []string
	var published int
	publish := func(n int) {
		var list []notify.Message
		for range n {
			text := fmt.Sprintf("%05d", published)
			published++
			all = append(all, text)
			list = append(list, message(fmt.Sprint("user", published%8), text))
		}
		if err := errors.Join(p.Publish(t.Context(), list)...); err != nil {
			t.Fatal(err)
		}
	}
	first := consume(t, topic, "", nil)
	publish(20)
	testenv.Eventually(t, soon, "one handles all", func() string { return first.lacks(all...) })
	second := consume(t, topic, "", nil)
	testenv.Eventually(t, soon, "the second handles some", func() string {
		publish(8)
		if len(second.texts()) == 0 {
			return "none"
		}
		return ""
	})
	second.stop()
	publish(20)
	testenv.Eventually(t, soon, "all are handled", func() string {
		both := handler{done: append(first.texts(), second.texts()...)}
		return both.lacks(all...)
	})
}

// TestFaultOfTheConsumersBroker: after a restart it goes on where it was.
func TestFaultOfTheConsumersBroker(t *testing.T) {
	if random.Times(0, 1) == 0 {
		t.Skip("runs in make chaos")
	}
	broker := testenv.StartKafka(t)
	topic := newTopic(broker)
	p := newPublisher(t, topic, 10*time.Second)
	r := consume(t, topic, topic.Name+"-dead", nil)
	published(t, p, "1", "2")
	testenv.Eventually(t, soon, "the first are handled", func() string { return r.lacks("1", "2") })
	broker.Kill()
	broker.Restart()
	othersPublish(t, topic) // which is no message
	published(t, p, "3")
	testenv.Eventually(t, soon, "the next one is handled", func() string { return r.lacks("3") })
	testenv.Eventually(t, soon, "what is no message is skipped", func() string {
		if r.skipped.Load() != 1 {
			return fmt.Sprintf("%d skipped", r.skipped.Load())
		}
		return ""
	})
}
