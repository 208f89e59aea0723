package table

import (
	"encoding/json"
	"time"

	"github.com/headgate-rls/headgate/policies"
)

// TimeText writes an instant as JSON has it: in UTC, with microseconds.
func TimeText(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000000Z") }

// OlderWords are figures in the older words of JSON, which stand beside those of rules.
type OlderWords struct {
	Type          string          `json:"type"`
	Capacity      int64           `json:"capacity"`
	RefillRate    policies.Amount `json:"refillRate"`
	WindowSeconds policies.Amount `json:"windowSeconds"`
}

// OlderWordsOf returns figures in the older words.
func OlderWordsOf(f policies.Figures) OlderWords {
	return OlderWords{policies.TypeOf(f.Algorithm), f.Capacity, f.Refill, f.Window}
}

// MarshalJSON writes an entry as the admin API and the command line print it.
func (e Entry) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Number     int64     `json:"number"`
		Generation int64     `json:"generation"`
		Key        string    `json:"key"`
		PolicyKey  string    `json:"policyKey"`
		ChangedBy  string    `json:"changedBy"`
		ChangedAt  string    `json:"changedAt"`
		Before     *Revision `json:"before"` // null: there was no policy
		After      *Revision `json:"after"`
	}{e.Number, e.Generation, e.Key, e.Key, e.By, TimeText(e.At), e.Before, e.After})
}

// MarshalJSON writes a revision as a part of an entry.
func (r Revision) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		policies.Words
		OlderWords
		Version int64 `json:"version"`
	}{r.Words(), OlderWordsOf(r.Figures), r.Version})
}
