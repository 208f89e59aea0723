package kafka

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/headgate-rls/headgate/internal/kit/background"
	"github.com/headgate-rls/headgate/notify"
)

// A Handler sends the message of a record.
type Handler interface {
	// Handle returns nil when the message is done with. An error that is [notify.ErrGiveUp] skips
	// it; after any other it is handled again. When ctx ends it begins nothing new, and returns
	// within seconds. It is called from several goroutines.
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
// partition, each at least once. It commits what was handled. Partitions do not wait for each
// other: one whose message cannot be sent leaves the rest alone.
type Consumer struct {
	ConsumerConfig
	client *kgo.Client

	mu      sync.Mutex
	lanes   map[int32]*lane // of the partitions whose messages are handled now
	failing bool            // the last commit failed

	handled, skipped, retried atomic.Int64
}

const (
	// fetchBytes bounds what is in memory of each partition, and of what a broker sends at once;
	// a batch of a producer, which the broker bounds, comes whole.
	fetchBytes, brokerBytes = 256 << 10, 8 << 20

	commitEvery  = 250 * time.Millisecond // what a crash may send again
	commitWithin = 5 * time.Second
	dialWithin   = 10 * time.Second
	retryAfter   = 500 * time.Millisecond
	settleWithin = 100 * time.Millisecond // a slow partition delays the others once by this
	// A partition that goes to another member waits for the message that is being handled.
	rebalanceWithin = 30 * time.Second
)

// NewConsumer returns a consumer. It does not connect. Close must be called.
func NewConsumer(c ConsumerConfig) (*Consumer, error) {
	consumer := &Consumer{ConsumerConfig: c, lanes: map[int32]*lane{}}
	leave := func(_ context.Context, _ *kgo.Client, partitions map[string][]int32) {
		consumer.stop(func(p int32) bool { return slices.Contains(partitions[c.Topic.Name], p) })
		consumer.commit()
	}
	var err error
	consumer.client, err = c.Topic.open("notify-sender", dialWithin,
		kgo.ConsumerGroup(c.Group), kgo.ConsumeTopics(c.Topic.Name),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.AutoCommitMarks(), kgo.AutoCommitInterval(commitEvery), kgo.AutoCommitCallback(consumer.autoCommitted),
		kgo.BlockRebalanceOnPoll(), kgo.OnPartitionsRevoked(leave), kgo.OnPartitionsLost(leave),
		kgo.SessionTimeout(10*time.Second), kgo.HeartbeatInterval(time.Second), kgo.RebalanceTimeout(rebalanceWithin),
		kgo.FetchMaxWait(250*time.Millisecond), kgo.FetchMaxPartitionBytes(fetchBytes), kgo.FetchMaxBytes(brokerBytes),
		kgo.RetryBackoffFn(backoff),
		kgo.RecordDeliveryTimeout(5*time.Second), kgo.AllowIdempotentProduceCancellation(),
		kgo.MetadataMinAge(250*time.Millisecond),
	)
	if err != nil {
		return nil, err
	}
	return consumer, nil
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

// Run consumes until ctx ends. Messages that are being handled then come to their end, as far
// as the handler brings them there; the rest is left to other members.
func (c *Consumer) Run(ctx context.Context) {
	for ctx.Err() == nil {
		fetches := c.client.PollFetches(ctx)
		fetches.EachError(func(topic string, partition int32, err error) {
			if !errors.Is(err, context.Canceled) {
				c.Log.Warn("the topic cannot be read at present", "topic", topic, "partition", partition, "error", err)
			}
		})
		var begun []*lane
		fetches.EachPartition(func(p kgo.FetchTopicPartition) {
			if len(p.Records) > 0 {
				begun = append(begun, c.start(ctx, p))
			}
		})
		c.settle(begun)
		c.client.AllowRebalance()
		if fetches.Empty() && ctx.Err() == nil {
			_ = background.Sleep(ctx, 50*time.Millisecond) // errors must not make it spin
		}
	}
	c.stop(func(int32) bool { return true })
	c.commit()
}

// A lane handles the records of a partition that one fetch has brought. The next fetch has nothing
// of the partition until they are done with.
type lane struct {
	partition int32
	records   []*kgo.Record
	cancel    context.CancelFunc
	done      chan struct{} // closed when nothing is handled any more
	paused    bool          // nothing of the partition is fetched
}

func (c *Consumer) start(ctx context.Context, p kgo.FetchTopicPartition) *lane {
	ctx, cancel := context.WithCancel(ctx)
	l := &lane{partition: p.Partition, records: p.Records, cancel: cancel, done: make(chan struct{})}
	c.mu.Lock()
	c.lanes[p.Partition] = l
	c.mu.Unlock()
	go func() {
		defer close(l.done)
		defer cancel()
		c.work(ctx, l.records)
		c.end(l)
	}()
	return l
}

// work handles records in their order, each until it is done with or ctx ends.
func (c *Consumer) work(ctx context.Context, records []*kgo.Record) {
	for _, r := range records {
		for ctx.Err() == nil {
			if c.send(ctx, r) {
				c.client.MarkCommitRecords(r) // done with: it is committed
				break
			}
			_ = background.Sleep(ctx, retryAfter)
		}
	}
}

// settle waits a moment for lanes. The partitions of those that take longer are not fetched for as
// long: to pause and to resume a partition costs a wait of its own.
func (c *Consumer) settle(lanes []*lane) {
	moment, cancel := context.WithTimeout(context.Background(), settleWithin)
	defer cancel()
	for _, l := range lanes {
		select {
		case <-l.done:
		case <-moment.Done():
			c.mu.Lock()
			if c.lanes[l.partition] == l {
				l.paused = true
				c.client.PauseFetchPartitions(c.only(l))
			}
			c.mu.Unlock()
		}
	}
}

func (c *Consumer) end(l *lane) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.lanes, l.partition)
	if l.paused {
		c.client.ResumeFetchPartitions(c.only(l))
	}
}

func (c *Consumer) only(l *lane) map[string][]int32 {
	return map[string][]int32{c.Topic.Name: {l.partition}}
}

// stop ends the lanes of partitions that leave, and waits for them.
func (c *Consumer) stop(leaves func(partition int32) bool) {
	c.mu.Lock()
	var ending []*lane
	for partition, l := range c.lanes {
		if leaves(partition) {
			l.cancel()
			ending = append(ending, l)
		}
	}
	c.mu.Unlock()
	for _, l := range ending {
		<-l.done
	}
}

// commit commits the offsets of what was handled. If that fails, it is handled again.
func (c *Consumer) commit() {
	ctx, cancel := context.WithTimeout(context.Background(), commitWithin)
	defer cancel()
	c.committed(c.client.CommitMarkedOffsets(ctx))
}

func (c *Consumer) autoCommitted(_ *kgo.Client, _ *kmsg.OffsetCommitRequest,
	resp *kmsg.OffsetCommitResponse, err error) {
	if errors.Is(err, context.Canceled) {
		return // another commit takes its place
	}
	if err == nil {
		for _, t := range resp.Topics {
			for _, p := range t.Partitions {
				err = errors.Join(err, kerr.ErrorForCode(p.ErrorCode))
			}
		}
	}
	c.committed(err)
}

// committed logs the first of the commits that fail.
func (c *Consumer) committed(err error) {
	c.mu.Lock()
	first := err != nil && !c.failing
	c.failing = err != nil
	c.mu.Unlock()
	if first {
		c.Log.Warn("messages were handled but not committed; they may be sent again", "error", err)
	}
}

// send reports whether a record was sent, or skipped.
func (c *Consumer) send(ctx context.Context, r *kgo.Record) bool {
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
		c.Log.Error("a message waits: it cannot be sent", "topic", r.Topic, "partition", r.Partition, "offset", r.Offset,
			"user", m.UserID, "error", err)
	}
	c.retried.Add(1)
	return false
}

// shownBytes bounds how much of a malformed message is logged.
const shownBytes = 200

// letterBytes is how much a dead letter keeps of a key and of a value that are too large.
const letterBytes = 64 << 10

// bury writes a record to the dead letters. If the record is too large for them, bury cuts it: else its
// partition would wait for ever.
func (c *Consumer) bury(ctx context.Context, r *kgo.Record, cause error) error {
	about := []kgo.RecordHeader{{Key: "reason", Value: []byte(cause.Error())},
		{Key: "from", Value: fmt.Appendf(nil, "%s/%d/%d", r.Topic, r.Partition, r.Offset)}}
	write := func(key, value []byte, headers []kgo.RecordHeader) error {
		return c.client.ProduceSync(ctx, &kgo.Record{Topic: c.DeadLetter, Key: key, Value: value,
			Headers: slices.Concat(headers, about)}).FirstErr()
	}
	err := write(r.Key, r.Value, r.Headers)
	for _, most := range []int{letterBytes, 0} {
		if !errors.Is(err, kerr.MessageTooLarge) {
			break
		}
		err = write(r.Key[:min(len(r.Key), most)], r.Value[:min(len(r.Value), most)],
			[]kgo.RecordHeader{{Key: "cut", Value: strconv.AppendInt(nil, int64(len(r.Value)), 10)}})
	}
	return err
}

// skip logs a record that is not sent, and hands it on to the dead letters.
func (c *Consumer) skip(ctx context.Context, r *kgo.Record, why string, cause error) bool {
	if c.DeadLetter != "" {
		if err := c.bury(ctx, r, cause); err != nil {
			c.Log.Error("a message waits: it cannot be written to the dead letters", "topic", r.Topic, "partition", r.Partition,
				"offset", r.Offset, "error", err)
			return false
		}
	}
	c.skipped.Add(1)
	c.Log.Error("a message is skipped", "why", why, "topic", r.Topic, "partition", r.Partition, "offset", r.Offset,
		"bytes", len(r.Value), "begins", string(r.Value[:min(len(r.Value), shownBytes)]), "error", cause)
	return true
}
