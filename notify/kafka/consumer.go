package kafka

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/headgate-rls/headgate/notify"
)

// A Handler sends the message of a record.
type Handler interface {
	// Handle returns nil when the message is done with. An error that is [notify.ErrGiveUp] skips
	// it; after any other it is handled again. It returns soon when ctx ends. It is called
	// from several goroutines.
	Handle(ctx context.Context, m notify.Message) error
}

// ConsumerConfig is what NewConsumer needs.
type ConsumerConfig struct {
	Topic      Topic
	Group      string
	DeadLetter string // the topic of skipped records; empty: they are only logged
	Handler    Handler
	Log        *slog.Logger
}

// A Consumer handles the messages of a topic as a member of a group: in the order of each
// partition, each at least once. It commits what was handled.
type Consumer struct {
	ConsumerConfig
	client *kgo.Client

	handled, skipped, retried atomic.Int64
}

// Bounds of one round.
const (
	pollRecords  = 100
	roundWithin  = 10 * time.Second // a rebalance waits no longer
	commitWithin = 5 * time.Second
	dialWithin   = 10 * time.Second
	retryAfter   = 500 * time.Millisecond
)

// NewConsumer returns a consumer. It does not connect. Close must be called.
func NewConsumer(c ConsumerConfig) (*Consumer, error) {
	client, err := c.Topic.open("notify-sender", dialWithin,
		kgo.ConsumerGroup(c.Group), kgo.ConsumeTopics(c.Topic.Name),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DisableAutoCommit(), kgo.BlockRebalanceOnPoll(),
		kgo.SessionTimeout(10*time.Second), kgo.HeartbeatInterval(time.Second), kgo.RebalanceTimeout(30*time.Second),
		kgo.FetchMaxWait(time.Second), kgo.FetchMaxBytes(8<<20), kgo.RetryBackoffFn(backoff),
		kgo.RecordDeliveryTimeout(5*time.Second), kgo.AllowIdempotentProduceCancellation(), kgo.MetadataMinAge(250*time.Millisecond),
	)
	if err != nil {
		return nil, err
	}
	return &Consumer{ConsumerConfig: c, client: client}, nil
}

// Close leaves the group.
func (c *Consumer) Close() {
	c.client.AllowRebalance()
	c.client.Close()
}

// EnsureTopic makes the topics if they do not exist.
func (c *Consumer) EnsureTopic(ctx context.Context) error {
	err := c.Topic.ensure(ctx, c.client)
	if err == nil && c.DeadLetter != "" {
		t := c.Topic
		t.Name = c.DeadLetter
		err = t.ensure(ctx, c.client)
	}
	return err
}

// Ping returns an error unless a broker answers.
func (c *Consumer) Ping(ctx context.Context) error { return c.client.Ping(ctx) }

// ConsumerStats are figures of a consumer.
type ConsumerStats struct{ Handled, Skipped, Retried int64 }

// Stats returns the figures.
func (c *Consumer) Stats() ConsumerStats {
	return ConsumerStats{c.handled.Load(), c.skipped.Load(), c.retried.Load()}
}

// Run consumes until ctx ends. What it is about then is brought to its end or handled again
// by somebody else.
func (c *Consumer) Run(ctx context.Context) {
	for ctx.Err() == nil {
		fetches := c.client.PollRecords(ctx, pollRecords)
		fetches.EachError(func(topic string, partition int32, err error) {
			if !errors.Is(err, context.Canceled) {
				c.Log.Warn("the topic cannot be read at present", "topic", topic, "partition", partition, "error", err)
			}
		})
		c.round(ctx, fetches)
		c.client.AllowRebalance()
		if fetches.Empty() && ctx.Err() == nil {
			pause(ctx, 50*time.Millisecond) // errors must not make it spin
		}
	}
}

// round handles records, all partitions at the same time, until each has come to its end or
// to a record that has to wait, or time is up. It commits what was handled, and has the rest
// fetched again.
func (c *Consumer) round(ctx context.Context, fetches kgo.Fetches) {
	within, cancel := context.WithTimeout(ctx, roundWithin)
	defer cancel()
	var mu sync.Mutex
	var done []*kgo.Record
	again := map[string]map[int32]kgo.EpochOffset{}
	var partitions sync.WaitGroup
	fetches.EachPartition(func(p kgo.FetchTopicPartition) {
		partitions.Go(func() {
			n := c.partition(within, p.Records)
			mu.Lock()
			defer mu.Unlock()
			done = append(done, p.Records[:n]...)
			if n < len(p.Records) {
				next := p.Records[n]
				if again[p.Topic] == nil {
					again[p.Topic] = map[int32]kgo.EpochOffset{}
				}
				again[p.Topic][p.Partition] = kgo.EpochOffset{Epoch: next.LeaderEpoch, Offset: next.Offset}
			}
		})
	})
	partitions.Wait()
	c.commit(done)
	if len(again) > 0 {
		c.client.SetOffsets(again)
		pause(ctx, retryAfter)
	}
}

// partition returns how many of a partition's records are done with.
func (c *Consumer) partition(ctx context.Context, records []*kgo.Record) int {
	for i, r := range records {
		if ctx.Err() != nil || !c.handle(ctx, r) {
			return i
		}
	}
	return len(records)
}

// commit tells the group what was handled. What it cannot be told is handled again.
func (c *Consumer) commit(done []*kgo.Record) {
	if len(done) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), commitWithin)
	defer cancel()
	if err := c.client.CommitRecords(ctx, done...); err != nil {
		c.Log.Warn("messages were handled but not committed; they may be sent again", "messages", len(done), "error", err)
	}
}

// handle reports whether a record is done with.
func (c *Consumer) handle(ctx context.Context, r *kgo.Record) bool {
	m, err := notify.Decode(r.Value)
	if err != nil {
		return c.skip(ctx, r, "malformed", err)
	}
	switch err := c.Handler.Handle(ctx, m); {
	case err == nil:
		c.handled.Add(1)
		return true
	case ctx.Err() != nil:
	case errors.Is(err, notify.ErrGiveUp):
		return c.skip(ctx, r, "given up", err)
	default:
		c.Log.Error("a message waits: it cannot be sent", "topic", r.Topic, "partition", r.Partition, "offset", r.Offset, "user", m.UserID, "error", err)
	}
	c.retried.Add(1)
	return false
}

// shownBytes bounds how much of a malformed message is logged.
const shownBytes = 200

// skip logs a record that is not sent, and hands it on to the dead letters.
func (c *Consumer) skip(ctx context.Context, r *kgo.Record, why string, cause error) bool {
	if c.DeadLetter != "" {
		letter := &kgo.Record{Topic: c.DeadLetter, Key: r.Key, Value: r.Value, Headers: append(r.Headers[:len(r.Headers):len(r.Headers)],
			kgo.RecordHeader{Key: "reason", Value: []byte(cause.Error())},
			kgo.RecordHeader{Key: "from", Value: fmt.Appendf(nil, "%s/%d/%d", r.Topic, r.Partition, r.Offset)})}
		if err := c.client.ProduceSync(ctx, letter).FirstErr(); err != nil {
			c.Log.Error("a message waits: it cannot be written to the dead letters", "topic", r.Topic, "partition", r.Partition, "offset", r.Offset, "error", err)
			return false
		}
	}
	c.skipped.Add(1)
	c.Log.Error("a message is skipped", "why", why, "topic", r.Topic, "partition", r.Partition, "offset", r.Offset,
		"bytes", len(r.Value), "begins", string(r.Value[:min(len(r.Value), shownBytes)]), "error", cause)
	return true
}

// pause waits, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
