package sender

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/notify"
)

// hook is the receiving end: it answers with the statuses of a script, one after the other, and
// with the last one from then on.
type hook struct {
	*httptest.Server
	mu     sync.Mutex
	script []int
	seen   []*http.Request
	bodies []string
	at     []time.Time
}

func startHook(t *testing.T, script ...int) *hook {
	t.Helper()
	h := &hook{script: script}
	h.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		h.mu.Lock()
		status := h.script[min(len(h.seen), len(h.script)-1)]
		h.seen, h.bodies, h.at = append(h.seen, r), append(h.bodies, string(body)), append(h.at, time.Now())
		h.mu.Unlock()
		if status == http.StatusFound {
			w.Header().Set("Location", "/elsewhere")
		}
		w.WriteHeader(status)
	}))
	t.Cleanup(h.Close)
	return h
}

func (h *hook) attempts() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.seen)
}

var one = notify.Message{ID: "m-1", UserID: "alice", Text: "hello",
	AcceptedAt: time.UnixMicro(1_700_000_000_000_000).UTC()}

// retrier returns a retrier of five attempts in front of a webhook, and its log.
func retrier(url, token string, skip bool) (*Retrier, *bytes.Buffer) {
	log := new(bytes.Buffer)
	return &Retrier{
		Webhook: NewWebhook(url, token, time.Second), Attempts: 5, Backoff: 20 * time.Millisecond, Skip: skip,
		Log: slog.New(slog.NewTextHandler(log, nil)),
	}, log
}

func TestAMessageIsPosted(t *testing.T) {
	h := startHook(t, 204)
	r, log := retrier(h.URL+"/sms?key=k", "s3cret", false)
	if err := r.Handle(t.Context(), one); err != nil {
		t.Fatal(err)
	}
	req := h.seen[0]
	if req.Method != "POST" || req.URL.String() != "/sms?key=k" || req.Header.Get("Content-Type") != "application/json" ||
		req.Header.Get("Idempotency-Key") != "m-1" || req.Header.Get("Authorization") != "Bearer s3cret" {
		t.Errorf("%s %s %v", req.Method, req.URL, req.Header)
	}
	if got, err := notify.Decode([]byte(h.bodies[0])); err != nil || got != one {
		t.Errorf("%q: %v", h.bodies[0], err)
	}
	if l := log.String(); !strings.Contains(l, `msg="SMS SENT" user=alice message=hello id=m-1`) ||
		strings.Contains(l, "s3cret") {
		t.Errorf("the log has %q", l)
	}
}

func TestAnswersOfTheWebhook(t *testing.T) {
	for _, c := range []struct {
		script   []int
		attempts int
		sent     bool
		giveUp   bool // without a place for dead letters
	}{
		{[]int{200}, 1, true, false},
		{[]int{503, 500, 200}, 3, true, false},
		{[]int{429, 408, 425, 502, 201}, 5, true, false},
		{[]int{503}, 5, false, false},
		{[]int{400}, 1, false, true},
		{[]int{401, 403, 407, 200}, 4, true, false}, // somebody has renewed the token
		{[]int{401}, 5, false, false},
		{[]int{404}, 1, false, true},
		{[]int{302}, 1, false, true}, // a redirect would carry the token elsewhere
		{[]int{500, 410}, 2, false, true},
	} {
		t.Run(fmt.Sprint(c.script), func(t *testing.T) {
			h := startHook(t, c.script...)
			r, log := retrier(h.URL, "s3cret", false)
			err := r.Handle(t.Context(), one)
			if (err == nil) != c.sent || errors.Is(err, notify.ErrGiveUp) != c.giveUp || h.attempts() != c.attempts {
				t.Errorf("%v after %d attempts", err, h.attempts())
			}
			if strings.Contains(log.String(), "SMS SENT") != c.sent {
				t.Errorf("the log has %q", log)
			}
			if err != nil && strings.Contains(err.Error(), "127.0.0.1") {
				t.Errorf("the error shows the URL: %v", err)
			}
		})
	}
}

// TestTheLastAttempt: with a place for dead letters, the message is given up; else the caller
// tries again.
func TestTheLastAttempt(t *testing.T) {
	for _, skip := range []bool{false, true} {
		h := startHook(t, 503)
		r, _ := retrier(h.URL, "", skip)
		if err := r.Handle(t.Context(), one); errors.Is(err, notify.ErrGiveUp) != skip || err == nil ||
			!strings.Contains(err.Error(), "after 5 attempts") {
			t.Errorf("skip %v: %v", skip, err)
		}
	}
}

// TestWaitsBetweenAttemptsGrow: each is at least half of what doubling makes it.
func TestWaitsBetweenAttemptsGrow(t *testing.T) {
	h := startHook(t, 503)
	r, _ := retrier(h.URL, "", false)
	if err := r.Handle(t.Context(), one); err == nil {
		t.Fatal("sent")
	}
	for i := 1; i < len(h.at); i++ {
		least := r.Backoff << (i - 1) / 2
		if got := h.at[i].Sub(h.at[i-1]); got < least {
			t.Errorf("%v before attempt %d, want at least %v", got, i+1, least)
		}
	}
}

func TestAWebhookThatHangs(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0") // it accepts and says nothing
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	w := NewWebhook("http://"+l.Addr().String()+"/?key=s3cret", "", 100*time.Millisecond)
	begin := time.Now()
	err = w.Send(t.Context(), one)
	if !errors.Is(err, context.DeadlineExceeded) || time.Since(begin) > 5*time.Second ||
		strings.Contains(fmt.Sprint(err), "s3cret") {
		t.Errorf("%v after %v", err, time.Since(begin))
	}
	var permanent *PermanentError
	if errors.As(err, &permanent) {
		t.Error("it is not tried again")
	}
}

func TestAWebhookThatIsAwayIsTriedAgain(t *testing.T) {
	h := startHook(t, 200)
	h.Close()
	r, _ := retrier(h.URL, "", false)
	if err := r.Handle(t.Context(), one); err == nil || errors.Is(err, notify.ErrGiveUp) ||
		!strings.Contains(err.Error(), "after 5 attempts") {
		t.Errorf("%v", err)
	}
}

// TestTheEndOfTheSenderEndsTheWait between attempts.
func TestTheEndOfTheSenderEndsTheWait(t *testing.T) {
	h := startHook(t, 503)
	r, _ := retrier(h.URL, "", true)
	r.Backoff = time.Hour
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Handle(ctx, one) }()
	for h.attempts() == 0 {
		time.Sleep(time.Millisecond)
	}
	cancel()
	select {
	case err := <-done:
		if !errors.Is(err, context.Canceled) || errors.Is(err, notify.ErrGiveUp) {
			t.Errorf("%v", err)
		}
	case <-time.After(10 * time.Second):
		t.Error("it still waits")
	}
}

// TestAnAttemptIsNotCutOff by the end of the sender: the message would be sent again.
func TestAnAttemptIsNotCutOff(t *testing.T) {
	arrived, answer := make(chan struct{}), make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		close(arrived)
		<-answer
	}))
	defer server.Close()
	r, log := retrier(server.URL, "", false)
	r.Webhook.Timeout = 10 * time.Second
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Handle(ctx, one) }()
	<-arrived
	cancel()
	select {
	case err := <-done:
		t.Errorf("it has not waited for the answer: %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	close(answer)
	if err := <-done; err != nil || !strings.Contains(log.String(), "SMS SENT") {
		t.Errorf("%v, and the log has %q", err, log)
	}
	if err := r.Handle(ctx, one); !errors.Is(err, context.Canceled) { // nothing new begins
		t.Errorf("%v", err)
	}
}

// TestAnEndlessAnswer is not read to its end.
func TestAnEndlessAnswer(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for r.Context().Err() == nil {
			if _, err := w.Write(make([]byte, 32<<10)); err != nil {
				return
			}
		}
	}))
	defer server.Close()
	if err := NewWebhook(server.URL, "", 10*time.Second).Send(t.Context(), one); err != nil {
		t.Error(err)
	}
}

// TestEveryMessageThatIsReadCanBePosted: what is in the topic may be anybody's, and a message that cannot be
// posted would have its partition wait for ever.
func TestEveryMessageThatIsReadCanBePosted(t *testing.T) {
	h := startHook(t, 204)
	r, _ := retrier(h.URL, "", false)
	for _, id := range []string{"", "m-1", "ünï", "a\nb", "\x00", "\x7f", strings.Repeat("x", 2<<20)} {
		m := one
		m.ID = id
		read, err := notify.Decode(m.Encode())
		if err != nil {
			continue // and skipped
		}
		if err := r.Handle(t.Context(), read); err != nil {
			t.Errorf("%.10q: %v", id, err)
		}
	}
	if n := h.attempts(); n != 3 {
		t.Errorf("%d messages were posted, want 3", n)
	}
}
