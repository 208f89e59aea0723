// Package llmtest is a language model for tests. It answers as the APIs of OpenAI, Anthropic and Gemini do, streamed
// and not, and records what was spent independently of every rate limit.
package llmtest

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"
)

// A Model is a running model.
type Model struct {
	Addr string // host:port
	Ledger
	// Full: a budget of its own is used up, so that it answers 429.
	Full   atomic.Bool
	server http.Server
	open   atomic.Int64
}

// Start runs a model on a free port of 127.0.0.1.
func Start() (*Model, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("start the model: %w", err)
	}
	m := &Model{Addr: l.Addr().String()}
	m.server = http.Server{Handler: m, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = m.server.Serve(l) }() // Close ends it
	return m, nil
}

// Close ends the model and its calls.
func (m *Model) Close() error { return m.server.Close() }

// Open is how many calls it is answering.
func (m *Model) Open() int { return int(m.open.Load()) }

// An asked is what a model reads of a call's body.
type asked struct {
	Stream        bool
	StreamOptions struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`
	MaxTokens           int64 `json:"max_tokens"`
	MaxCompletionTokens int64 `json:"max_completion_tokens"`
	MaxOutputTokens     int64 `json:"max_output_tokens"`
	GenerationConfig    struct {
		MaxOutputTokens int64 `json:"maxOutputTokens"`
	} `json:"generationConfig"`
}

// most is the client's limit on output, or 0.
func (a *asked) most() int64 {
	return max(a.MaxTokens, a.MaxCompletionTokens, a.MaxOutputTokens, a.GenerationConfig.MaxOutputTokens)
}

const maxBody = 16 << 20

func (m *Model) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	m.open.Add(1)
	defer m.open.Add(-1)
	var plan Plan
	var body asked
	data, err := io.ReadAll(io.LimitReader(r.Body, maxBody))
	if err == nil && r.Method == http.MethodPost {
		err = json.Unmarshal(data, &body)
	}
	if text := r.Header.Get(PlanHeader); err == nil && text != "" {
		err = json.Unmarshal([]byte(text), &plan)
	}
	speak := apiOf(r.URL.Path)
	switch {
	case m.Full.Load():
		http.Error(w, `{"error":{"message":"rate limit reached"}}`, http.StatusTooManyRequests)
		return
	case err != nil || plan.End == Refuses:
		http.Error(w, `{"error":{"message":"bad request"}}`, http.StatusBadRequest)
		return
	case plan.End == Fails:
		http.Error(w, `{"error":{"message":"the model failed"}}`, http.StatusInternalServerError)
		return
	case r.Method == http.MethodGet:
		_, _ = io.WriteString(w, `{"data":[{"id":"mock"}]}`)
		return
	case speak == nil:
		http.NotFound(w, r)
		return
	}
	if most := body.most(); most > 0 {
		plan.Output = min(plan.Output, most)
	}
	a := &answer{Plan: plan, speak: speak, w: http.NewResponseController(w), out: w, done: r.Context().Done(),
		stream: body.Stream || strings.HasSuffix(r.URL.Path, ":streamGenerateContent"),
		usage:  plan.End != Silent && (speak.always || !body.Stream || body.StreamOptions.IncludeUsage)}
	a.give()
	m.Ledger.add(Entry{User: r.Header.Get(UserHeader), At: time.Now(), Tokens: a.spent()})
	if a.cut {
		panic(http.ErrAbortHandler)
	}
}
