package kafka

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/headgate-rls/headgate/notify"
)

// A Publisher brings messages to a topic. A record has the user's id as its key, so that a
// user's messages are in one partition, in their order. All replicas in sync confirm it, and
// an idempotent producer keeps its own retries from repeating it.
type Publisher struct {
	topic  Topic
	within time.Duration
	client *kgo.Client
}

// maxBuffered bounds the records that wait for the brokers.
const maxBuffered = 20_000

// hungAfter is how much later than it should a broker may answer, before its connection is
// given up.
const hungAfter = 3 * time.Second

var errUnconfirmed = errors.New("the brokers did not confirm the message in time")

// NewPublisher returns a publisher whose calls take at most as long as within. A message waits for
// as long as linger for others, to be sent together with them. NewPublisher does not connect. Close
// must be called.
func NewPublisher(topic Topic, within, linger time.Duration) (*Publisher, error) {
	client, err := topic.open("notify-gateway", within,
		kgo.DefaultProduceTopic(topic.Name), kgo.RequiredAcks(kgo.AllISRAcks()), kgo.MaxBufferedRecords(maxBuffered),
		// The context of Publish gives records up. One that was sent may be in the topic all the
		// same: without this option it would wait for its broker for ever, and all of its
		// partition behind it. RecordDeliveryTimeout would count from the record's timestamp.
		kgo.AllowIdempotentProduceCancellation(),
		kgo.ProduceRequestTimeout(within), kgo.RequestTimeoutOverhead(hungAfter), kgo.RetryBackoffFn(backoff),
		kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.ProducerLinger(linger),
		kgo.MetadataMinAge(250*time.Millisecond), kgo.UnknownTopicRetries(-1),
	)
	if err != nil {
		return nil, err
	}
	return &Publisher{topic: topic, within: within, client: client}, nil
}

// backoff is short: a broker that is back is to be noticed soon.
func backoff(tries int) time.Duration {
	return min(50*time.Millisecond<<min(tries, 4), 500*time.Millisecond)
}

// Close gives up what was not confirmed.
func (p *Publisher) Close() { p.client.Close() }

// EnsureTopic makes the topic if it does not exist.
func (p *Publisher) EnsureTopic(ctx context.Context) error { return p.topic.ensure(ctx, p.client) }

// Ping returns an error unless a broker answers and knows the topic.
func (p *Publisher) Ping(ctx context.Context) error {
	err := p.client.Ping(ctx)
	if err == nil && !exists(ctx, p.client, p.topic.Name) {
		err = fmt.Errorf("there is no topic %s", p.topic.Name)
	}
	if err != nil {
		return &notify.UnavailableError{Part: notify.Broker, Err: err}
	}
	return nil
}

// Publish returns an error for each message that was not confirmed. Such a message may be
// in the topic all the same.
func (p *Publisher) Publish(ctx context.Context, messages []notify.Message) []error {
	ctx, cancel := context.WithTimeout(ctx, p.within)
	defer cancel()
	type result struct {
		message int
		err     error
	}
	results := make(chan result, len(messages))
	errs := make([]error, len(messages))
	for i, m := range messages {
		errs[i] = &notify.UnavailableError{Part: notify.Broker, Err: errUnconfirmed}
		p.client.TryProduce(ctx, &kgo.Record{Key: []byte(m.UserID), Value: m.Encode()}, func(_ *kgo.Record, err error) {
			results <- result{i, err}
		})
	}
	for range messages {
		select {
		case r := <-results:
			errs[r.message] = nil
			if r.err != nil {
				errs[r.message] = &notify.UnavailableError{Part: notify.Broker, Err: r.err}
			}
		case <-ctx.Done():
			return errs
		}
	}
	return errs
}
