package httpapi

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/slots"
)

// batch sends a batch, and returns its results.
func (s *server) batch(t testing.TB, body string) []map[string]any {
	t.Helper()
	var list []map[string]any
	for _, v := range s.do(t, "POST", "/api/v1/slots:batch", body).Is(t, 200).Object(t)["results"].([]any) {
		list = append(list, v.(map[string]any))
	}
	return list
}

// TestBatchJudgesEachEventAlone: each event is judged by itself, in order.
func TestBatchJudgesEachEventAlone(t *testing.T) {
	s := withDefault(t)
	s.do(t, "POST", "/api/v1/slots", `{"eventId":"old","requestedTime":"2025-06-01T12:00:00Z"}`).Is(t, 200)
	list := s.batch(t, `{"events":[
		{"eventId":"a","configName":"default","requestedTime":"2025-06-01T12:00:00Z"},
		{"eventId":"","requestedTime":"2025-06-01T12:00:00Z"},
		{"eventId":"b","configName":"nowhere","requestedTime":"2025-06-01T12:00:00Z"},
		{"eventId":"c","requestedTime":"tomorrow"},
		{"eventId":"old","requestedTime":"2025-06-01T12:00:00Z"},
		{"eventId":"a","requestedTime":"2025-06-01T12:00:01Z"},
		{"eventId":"d","configName":"","requestedTime":"2025-06-01T12:00:00Z"}]}`)
	var got []string
	for _, r := range list {
		got = append(got, fmt.Sprint(r["status"], " ", r["eventId"], " ", r["replayed"]))
	}
	want := "200 a <nil>, 400  <nil>, 404 b <nil>, 400 c <nil>, 200 old true, 200 a true, 400 d <nil>"
	if strings.Join(got, ", ") != want {
		t.Fatalf("the results are %v, want %s", got, want)
	}
	keys(t, list[0], "status", "eventId", "scheduledTime", "delayMs")
	keys(t, list[2], "status", "eventId", "error", "message")
	if list[5]["scheduledTime"] != list[0]["scheduledTime"] {
		t.Errorf("the same event twice: %v and %v", list[0], list[5])
	}
	if !strings.Contains(list[3]["message"].(string), "requestedTime") || list[2]["error"] != "Not Found" {
		t.Errorf("the failures are %v and %v", list[3], list[2])
	}
}

func TestBatchOfManyFillsWindowsInOrder(t *testing.T) {
	s := withDefault(t)
	var events []string
	for i := range 1000 {
		events = append(events, fmt.Sprintf(`{"eventId":"e%d","requestedTime":"2025-06-01T12:00:00Z"}`, i))
	}
	windows := map[time.Time]int{}
	for _, r := range s.batch(t, `{"events":[`+strings.Join(events, ",")+`]}`) {
		at, err := time.Parse(time.RFC3339, fmt.Sprint(r["scheduledTime"]))
		if err != nil {
			t.Fatalf("%v: %v", r, err)
		}
		windows[at.Truncate(4*time.Second)]++
	}
	start := time.Date(2025, 6, 1, 12, 0, 0, 0, time.UTC)
	for i := range 10 {
		if at := start.Add(time.Duration(i) * 4 * time.Second); windows[at] != 100 {
			t.Errorf("the window %v has %d events, want 100", at, windows[at])
		}
	}
	s.do(t, "POST", "/api/v1/slots:batch", `{"events":[`+strings.Join(append(events, events[0]), ",")+`]}`).Is(t,
		400).Says(t, "events has 1001 entries")
	s.do(t, "POST", "/api/v1/slots:batch", `{"events":[]}`).Is(t, 400).Says(t, "events has 0 entries")
	s.do(t, "POST", "/api/v1/slots:batch", `{"events":[{"eventId":"x"}]}`).Is(t, 400).Says(t,
		"events[0].requestedTime is missing")
}

func TestBatchTellsWhenToAskAgain(t *testing.T) {
	s := newServer(t, &scripted{batch: func(_ context.Context, rs []slots.Request) []slots.BatchResult {
		out := make([]slots.BatchResult, len(rs))
		out[1].Err = &slots.RetryError{After: 1100 * time.Millisecond, Err: slots.ErrExhausted}
		return out
	}})
	list := s.batch(t, `{"events":[
		{"eventId":"a","requestedTime":"2025-06-01T12:00:00Z"},{"eventId":"b","requestedTime":"2025-06-01T12:00:00Z"}]}`)
	if list[1]["status"] != 503.0 || list[1]["retryAfter"] != 2.0 || list[1]["eventId"] != "b" {
		t.Errorf("the failure is %v", list[1])
	}
}

// TestAFailingBatchDoesNotFloodTheLog: a thousand events fail for one reason.
func TestAFailingBatchDoesNotFloodTheLog(t *testing.T) {
	s := newServer(t, &scripted{batch: func(_ context.Context, rs []slots.Request) []slots.BatchResult {
		out := make([]slots.BatchResult, len(rs))
		for i := range out {
			out[i].Err = context.DeadlineExceeded
		}
		return out
	}})
	var events []string
	for i := range slots.MaxBatch {
		events = append(events, fmt.Sprintf(`{"eventId":"e%d","requestedTime":"2025-06-01T12:00:00Z"}`, i))
	}
	s.do(t, "POST", "/api/v1/slots:batch", `{"events":[`+strings.Join(events, ",")+"]}").Is(t, 200)
	if n := strings.Count(s.log.String(), "\n"); n < 1 || n > 2*loggedPerSecond { // two seconds, if one ends meanwhile
		t.Errorf("the log has %d lines", n)
	}
}
