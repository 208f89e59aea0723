package kafka

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/headgate-rls/headgate/notify"
	"github.com/headgate-rls/headgate/test/random"
	"github.com/headgate-rls/headgate/test/testenv"
)

// newTopic returns a topic of its own for a test.
func newTopic(broker *testenv.KafkaBroker) Topic {
	return Topic{Brokers: []string{broker.Addr}, Name: fmt.Sprintf("sms-%d", time.Now().UnixNano()),
		Partitions: 2, Replicas: 1}
}

func newPublisher(t *testing.T, topic Topic, within time.Duration) *Publisher {
	t.Helper()
	p, err := NewPublisher(topic, within, time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	if err := p.EnsureTopic(t.Context()); err != nil {
		t.Fatal(err)
	}
	return p
}

func message(user, text string) notify.Message {
	return notify.Message{ID: "id-" + text, UserID: user, Text: text, AcceptedAt: time.Now().UTC()}
}

// TestAMessageThatHasWaitedLongIsPublished: such as after an outage that was longer than a call
// of Publish may take.
func TestAMessageThatHasWaitedLongIsPublished(t *testing.T) {
	p := newPublisher(t, newTopic(testenv.SharedKafka(t)), 10*time.Second)
	m := message("u", "x")
	m.AcceptedAt = m.AcceptedAt.Add(-time.Hour)
	if err := p.Publish(t.Context(), []notify.Message{m})[0]; err != nil {
		t.Error(err)
	}
}

// TestFaultOfTheBroker: killed and frozen, it confirms nothing; once it confirms what others
// publish, publishing goes on within resumesWithin.
func TestFaultOfTheBroker(t *testing.T) {
	if random.Times(0, 1) == 0 {
		t.Skip("runs in make chaos")
	}
	const resumesWithin = 5 * time.Second
	broker := testenv.StartKafka(t)
	topic := newTopic(broker)
	for _, c := range []struct {
		name       string
		away, back func()
	}{{"killed", broker.Kill, broker.Restart}, {"frozen", broker.Pause, broker.Resume}} {
		t.Run(c.name, func(t *testing.T) {
			p := newPublisher(t, topic, time.Second)
			publish := func() error { return p.Publish(context.Background(), []notify.Message{message("u", "x")})[0] }
			testenv.Eventually(t, 20*time.Second, "the first message is published", func() string { return problem(publish()) })
			c.away()
			for range 5 {
				if publish() == nil {
					t.Error("confirmed without a broker")
				}
			}
			c.back()
			othersPublish(t, topic)
			testenv.Eventually(t, resumesWithin, "publishing goes on", func() string { return problem(publish()) })
		})
	}
}

// problem is what [testenv.Eventually] waits to be empty.
func problem(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// othersPublish waits until the broker confirms what a new client publishes.
func othersPublish(t *testing.T, topic Topic) {
	t.Helper()
	c, err := kgo.NewClient(kgo.SeedBrokers(topic.Brokers...), kgo.DefaultProduceTopic(topic.Name),
		kgo.RetryBackoffFn(backoff))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := c.ProduceSync(ctx, kgo.StringRecord("probe")).FirstErr(); err != nil {
		t.Fatalf("the broker is not back: %v", err)
	}
}
