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
	var to sender.Sender = sender.Console{}
	if conf.Webhook != "" {
		to = sender.NewWebhook(conf.Webhook, conf.WebhookToken, conf.WebhookTimeout)
	}
	consumer, err := kafka.NewConsumer(kafka.ConsumerConfig{
		Topic: conf.Topic,
		Group: conf.Group, DeadLetter: conf.DeadLetter, Log: log,
		Handler: &sender.Retrier{Sender: to, Attempts: conf.WebhookAttempts, Backoff: conf.WebhookBackoff, Log: log,
			Skip: conf.DeadLetter != ""},
	})
	if err != nil {
		return err
	}
	defer consumer.Close()
	metrics := newMetrics(version, consumer.Rows())
	var draining atomic.Bool
	checks := []*check{{name: "kafka", log: log, ping: consumer.Ping, problem: kafka.Problem}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", healthz)
	mux.Handle("GET /readyz", web.Readiness{Draining: draining.Load, Parts: func() []web.Part { return looks(checks) }})
	mux.Handle("GET /metrics", metrics)
	public, err := listen(ctx, "http", conf.HTTP, mux, 10*time.Second, log)
	if err != nil {
		return err
	}
	address := ""
	if public != nil {
		defer public.listener.Close()
		address = public.listener.Addr().String()
	}
	if err := await(ctx, log, "Kafka", conf.StartWait, consumer.EnsureTopic); err != nil {
		return err
	}
	var all servers
	all.start(public)
	work, stop := context.WithCancel(ctx)
	defer stop()
	var consuming sync.WaitGroup
	consuming.Go(func() { consumer.Run(work) })
	log.Info("serving", "http", address, "topic", conf.Topic.Name, "group", conf.Group, "webhook", conf.Webhook != "")
	select {
	case <-ctx.Done():
	case err = <-all.failed:
	}
	draining.Store(true)
	stop()
	consuming.Wait()
	all.stop(time.Second)
	return err
}
