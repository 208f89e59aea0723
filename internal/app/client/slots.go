package client

import (
	"context"
	"fmt"
	"net/http"
)

// A Slot is what became of one event.
type Slot struct {
	Status        int    `json:"status"`                  // as HTTP has it; 200: the event has a slot
	EventID       string `json:"eventId,omitempty"`       // empty if the answer is about all events
	ScheduledTime string `json:"scheduledTime,omitempty"` // RFC 3339
	DelayMs       int64  `json:"delayMs"`                 // from the time that was asked for
	Replayed      bool   `json:"replayed"`                // the event had the slot before
	Message       string `json:"message,omitempty"`       // why there is no slot
	RetryAfter    int64  `json:"retryAfter,omitempty"`    // seconds, from the service; Assign makes RetryAfterMs of it
	RetryAfterMs  int64  `json:"retryAfterMs,omitempty"`
}

// Assign asks for slots from the time at (RFC 3339) by a config, empty for the default
// one, and returns one result for each event. The service takes at most [slots.MaxBatch]
// events. Errors: *[Refusal], or that there was no answer.
func (a *API) Assign(ctx context.Context, events []string, config, at string) ([]Slot, error) {
	type ask struct {
		EventID       string `json:"eventId"`
		ConfigName    string `json:"configName,omitempty"`
		RequestedTime string `json:"requestedTime"`
	}
	asks := make([]ask, len(events))
	for i, event := range events {
		asks[i] = ask{event, config, at}
	}
	var answer struct {
		Results []Slot `json:"results"`
	}
	if err := a.Call(ctx, http.MethodPost, "/api/v1/slots:batch", map[string]any{"events": asks}, &answer); err != nil {
		return nil, err
	}
	if len(answer.Results) != len(events) {
		return nil, fmt.Errorf("the answer has %d results for %d events", len(answer.Results), len(events))
	}
	for i := range answer.Results {
		r := &answer.Results[i]
		r.RetryAfterMs, r.RetryAfter = r.RetryAfter*1000, 0
	}
	return answer.Results, nil
}
