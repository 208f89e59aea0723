package serve

import (
	"context"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate-rls/headgate/internal/kit/web"
	"github.com/headgate-rls/headgate/notify/kafka"
	"github.com/headgate-rls/headgate/notify/sender"
)

// consumer returns what the settings say of what is consumed, and how it is sent.
func (c *SenderSettings) consumer(log *slog.Logger) kafka.ConsumerConfig {
	r := &sender.Retrier{Attempts: c.WebhookAttempts, Backoff: c.WebhookBackoff, Log: log, Skip: c.DeadLetter != ""}
	if c.Webhook != "" {
		r.Webhook = sender.NewWebhook(c.Webhook, c.WebhookToken, c.WebhookTimeout)
	}
	return kafka.ConsumerConfig{Topic: c.Topic, Group: c.Group, DeadLetter: c.DeadLetter, Handler: r, Log: log}
}

// Sender runs notify-sender until ctx ends.
func Sender(ctx context.Context, conf *SenderSettings, log *slog.Logger, version string) error {
	consumer, err := kafka.NewConsumer(conf.consumer(log))
	if err != nil {
		return err
	}
	defer consumer.Close()
	metrics := NewMetrics(version, &conf.Log, consumer.Rows())
	var draining atomic.Bool
	checks := []*Check{{Name: "kafka", Log: log, Ping: consumer.Ping, Problem: kafka.Problem}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", Healthz)
	mux.Handle("GET /readyz", web.Readiness{Draining: draining.Load, Parts: func() []web.Part { return Looks(checks) }})
	mux.Handle("GET /metrics", metrics)
	public, err := Listen(ctx, "http", conf.HTTP, mux, 10*time.Second, log)
	if err != nil {
		return err
	}
	address := ""
	if public != nil {
		defer public.Listener.Close()
		address = public.Listener.Addr().String()
	}
	if err := Await(ctx, log, "Kafka", conf.StartWait, consumer.EnsureTopic); err != nil {
		return err
	}
	var all Servers
	all.Start(public)
	work, stop := context.WithCancel(ctx)
	defer stop()
	var consuming sync.WaitGroup
	consuming.Go(func() { consumer.Run(work) })
	log.Info("serving", "http", address, "topic", conf.Topic.Name, "group", conf.Group, "webhook", conf.Webhook != "")
	select {
	case <-ctx.Done():
	case err = <-all.Failed:
	}
	draining.Store(true)
	stop()
	consuming.Wait()
	all.Stop(time.Second)
	return err
}
