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

// Sender runs notify-sender until ctx ends.
func Sender(ctx context.Context, conf *SenderSettings, log *slog.Logger, version string) error {
	var to *sender.Webhook
	if conf.Webhook != "" {
		to = sender.NewWebhook(conf.Webhook, conf.WebhookToken, conf.WebhookTimeout)
	}
	consumer, err := kafka.NewConsumer(kafka.ConsumerConfig{
		Topic: conf.Topic,
		Group: conf.Group, DeadLetter: conf.DeadLetter, Log: log,
		Handler: &sender.Retrier{Webhook: to, Attempts: conf.WebhookAttempts, Backoff: conf.WebhookBackoff, Log: log,
			Skip: conf.DeadLetter != ""},
	})
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
