package serve

import (
	"testing"

	"github.com/headgate-rls/headgate/internal/kit/settings"
	"github.com/headgate-rls/headgate/notify/sender"
	"github.com/headgate-rls/headgate/test/wired"
)

// TestSettingsReachTheConsumer and what sends its messages.
func TestSettingsReachTheConsumer(t *testing.T) {
	wired.Check(t, func() (settings.Program, func() any) {
		c := new(SenderSettings)
		return c.Program(), func() any {
			with := *c
			with.Webhook = "http://x" // else nothing is sent
			conf, sends := c.consumer(nil), with.consumer(nil)
			for _, r := range []*sender.Retrier{conf.Handler.(*sender.Retrier), sends.Handler.(*sender.Retrier)} {
				if r.Webhook != nil {
					r.Webhook.Client = nil // a new one each time
				}
			}
			return []any{conf, sends}
		}
	}, "config", "http", "start-wait", "log-level", "log-format")
	c := (&SenderSettings{DeadLetter: "dead"}).consumer(nil)
	if skip := c.Handler.(*sender.Retrier).Skip; c.DeadLetter != "dead" || !skip {
		t.Errorf("with --dead-letter-topic: %q, skip %v", c.DeadLetter, skip)
	}
}
