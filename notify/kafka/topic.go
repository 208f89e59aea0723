package kafka

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// A Topic is where messages are, and how to make it.
type Topic struct {
	Brokers    []string // host:port
	Access     Access
	Name       string
	Partitions int
	Replicas   int
}

// open returns a client. It does not connect.
func (t Topic) open(name string, dialWithin time.Duration, opts ...kgo.Opt) (*kgo.Client, error) {
	access, err := t.Access.options(dialWithin)
	var client *kgo.Client
	if err == nil {
		client, err = kgo.NewClient(append(append(access, kgo.SeedBrokers(t.Brokers...), kgo.ClientID(name)), opts...)...)
	}
	if err != nil {
		return nil, fmt.Errorf("kafka: %w", err)
	}
	return client, nil
}

// ensure makes the topic if it does not exist.
func (t Topic) ensure(ctx context.Context, client *kgo.Client) error {
	topic := kmsg.NewCreateTopicsRequestTopic()
	topic.Topic, topic.NumPartitions, topic.ReplicationFactor = t.Name, int32(t.Partitions), int16(t.Replicas)
	req := kmsg.NewPtrCreateTopicsRequest()
	req.Topics, req.TimeoutMillis = append(req.Topics, topic), 5000
	resp, err := req.RequestWith(ctx, client)
	if err != nil {
		return fmt.Errorf("make the topic %s: %w", t.Name, err)
	}
	for _, made := range resp.Topics {
		if err := kerr.ErrorForCode(made.ErrorCode); err != nil && !errors.Is(err, kerr.TopicAlreadyExists) {
			if exists(ctx, client, t.Name) {
				continue // made by somebody who may
			}
			return fmt.Errorf("make the topic %s: %w", t.Name, err)
		}
	}
	return nil
}

// exists reports whether the brokers know the topic.
func exists(ctx context.Context, client *kgo.Client, name string) bool {
	topic := kmsg.NewMetadataRequestTopic()
	topic.Topic = &name
	req := kmsg.NewPtrMetadataRequest()
	req.Topics = append(req.Topics, topic)
	resp, err := req.RequestWith(ctx, client)
	return err == nil && len(resp.Topics) == 1 && resp.Topics[0].ErrorCode == 0
}
