package policies

import (
	"encoding/json"
	"time"
)

// TimeText writes an instant as JSON has it: in UTC, with microseconds.
func TimeText(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000000Z") }

// MarshalJSON writes an entry as the admin API and the command line print it.
func (e Entry) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Number     int64     `json:"number"`
		Generation int64     `json:"generation"`
		PolicyKey  string    `json:"policyKey"`
		ChangedBy  string    `json:"changedBy"`
		ChangedAt  string    `json:"changedAt"`
		Before     *Revision `json:"before"` // null: there was no policy
		After      *Revision `json:"after"`
	}{e.Number, e.Generation, e.Key, e.By, TimeText(e.At), e.Before, e.After})
}

// MarshalJSON writes a revision as a part of an entry.
func (r Revision) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Type          string `json:"type"`
		Capacity      int64  `json:"capacity"`
		RefillRate    Amount `json:"refillRate"`
		WindowSeconds Amount `json:"windowSeconds"`
		Version       int64  `json:"version"`
	}{TypeOf(r.Algorithm), r.Capacity, r.Refill, r.Window, r.Version})
}
