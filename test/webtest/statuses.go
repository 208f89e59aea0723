package webtest

import (
	"fmt"
	"net/http"
	"sync"
	"testing"
)

// Statuses hand requests on and count the answers, by "METHOD STATUS".
type Statuses struct {
	next   http.Handler
	mu     sync.Mutex
	counts map[string]int
}

// CountStatuses counts the answers of next.
func CountStatuses(next http.Handler) *Statuses {
	return &Statuses{next: next, counts: map[string]int{}}
}

// ServeHTTP implements http.Handler.
func (s *Statuses) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	recorder := &statusRecorder{ResponseWriter: w, code: http.StatusOK}
	s.next.ServeHTTP(recorder, r)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts[fmt.Sprint(r.Method, " ", recorder.code)]++
}

// Want checks that each of these answers was given: else a run has shown little.
func (s *Statuses) Want(t testing.TB, answers ...string) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	t.Logf("answers: %v", s.counts)
	for _, a := range answers {
		if s.counts[a] == 0 {
			t.Errorf("there was no %s", a)
		}
	}
}

type statusRecorder struct {
	http.ResponseWriter
	code int
}

func (r *statusRecorder) WriteHeader(code int) {
	r.code = code
	r.ResponseWriter.WriteHeader(code)
}

func (r *statusRecorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }
