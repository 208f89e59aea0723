package sender

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"slices"
	"time"

	"github.com/headgate-rls/headgate/internal/kit/background"
	"github.com/headgate-rls/headgate/notify"
)

// A PermanentError: sending again would not help.
type PermanentError struct{ Err error }

func (e *PermanentError) Error() string { return e.Err.Error() }
func (e *PermanentError) Unwrap() error { return e.Err }

// A Webhook posts messages as JSON. Its answer decides: 2xx is sent; 401, 403 and 407, which are about the sender and
// not the message, 408, 425, 429 and 5xx are worth another attempt; everything else is not.
type Webhook struct {
	URL     string
	Token   string // for Authorization: Bearer; empty: none
	Timeout time.Duration
	Client  *http.Client
}

// NewWebhook returns a webhook that follows no redirects: they would send the token on.
func NewWebhook(url, token string, timeout time.Duration) *Webhook {
	return &Webhook{url, token, timeout, &http.Client{
		Transport: &http.Transport{MaxIdleConns: 4, MaxIdleConnsPerHost: 4, IdleConnTimeout: time.Minute,
			MaxResponseHeaderBytes: 64 << 10},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// maxAnswer is how much of an answer is read, so that its connection can be used again.
const maxAnswer = 64 << 10

// worthwhile are the statuses below 500 after which a message is sent again.
var worthwhile = []int{http.StatusUnauthorized, http.StatusForbidden, http.StatusProxyAuthRequired,
	http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests}

// Send returns nil when the message was sent. A message may be sent more than once, with the same ID.
func (w *Webhook) Send(ctx context.Context, m notify.Message) error {
	ctx, cancel := context.WithTimeout(ctx, w.Timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.URL, bytes.NewReader(m.Encode()))
	if err != nil {
		return &PermanentError{err}
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Idempotency-Key", m.ID)
	if w.Token != "" {
		req.Header.Set("Authorization", "Bearer "+w.Token)
	}
	resp, err := w.Client.Do(req)
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("webhook: no answer within %v: %w", w.Timeout, context.DeadlineExceeded)
	}
	if err != nil {
		return fmt.Errorf("webhook: %w", errors.Unwrap(err)) // without the URL, in which there may be a secret
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, maxAnswer))
	switch code := resp.StatusCode; {
	case code >= 200 && code < 300:
		return nil
	case code >= 500, slices.Contains(worthwhile, code):
		return fmt.Errorf("webhook: it answers %s", resp.Status)
	default:
		return &PermanentError{fmt.Errorf("webhook: it answers %s", resp.Status)}
	}
}

// A Retrier tries again, with growing waits.
type Retrier struct {
	Webhook  *Webhook // nil: a message is sent nowhere, and the log is what there is to see
	Attempts int
	Backoff  time.Duration // before the second attempt
	Log      *slog.Logger
	// Skip gives messages up after the last attempt; else the caller tries again.
	Skip bool
}

// maxBackoff bounds the wait between attempts.
const maxBackoff = 5 * time.Second

// finishWithin is how long an attempt may go on after the end of its context. To cut it off would
// send a message again that the receiver may have taken.
const finishWithin = 10 * time.Second

// Handle sends a message and logs that it was sent. After the last attempt it returns the
// error of that, which is [notify.ErrGiveUp] if the message is to be skipped. The end of ctx ends
// the waits between attempts, and an attempt that lasts for finishWithin longer.
func (r *Retrier) Handle(ctx context.Context, m notify.Message) error {
	wait := r.Backoff
	for attempt := 1; ; attempt++ {
		err := r.attempt(ctx, m)
		switch {
		case err == nil:
			r.Log.Info("SMS SENT", "user", m.UserID, "message", m.Text, "id", m.ID)
			return nil
		case errors.As(err, new(*PermanentError)), attempt >= r.Attempts && r.Skip:
			return fmt.Errorf("%w after %d attempts: %w", notify.ErrGiveUp, attempt, err)
		case attempt >= r.Attempts:
			return fmt.Errorf("after %d attempts: %w", attempt, err)
		}
		r.Log.Warn("a message could not be sent; it is tried again", "user", m.UserID, "id", m.ID, "attempt", attempt,
			"error", err)
		if err := background.Sleep(ctx, wait/2+rand.N(wait/2+1)); err != nil {
			return err
		}
		wait = min(2*wait, maxBackoff)
	}
}

// attempt sends a message, unless ctx has ended.
func (r *Retrier) attempt(ctx context.Context, m notify.Message) error {
	if err := ctx.Err(); err != nil || r.Webhook == nil {
		return err
	}
	attempt, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() {
		select {
		case <-attempt.Done():
		case <-time.After(finishWithin):
			cancel()
		}
	})()
	return r.Webhook.Send(attempt, m)
}
