package client

import (
	"context"
	"net/http"
	"time"
)

// Admin is the admin API of a running service.
type Admin struct{ Slots }

// A Shape is what a process has seen of descriptors with the same keys in a domain.
type Shape struct {
	Domain    string    `json:"domain"`
	Entries   []string  `json:"entries"`
	Matched   int64     `json:"matched"`
	Unmatched int64     `json:"unmatched"`
	First     time.Time `json:"first"`
	Last      time.Time `json:"last"`
	Example   string    `json:"example,omitempty"`
	Why       string    `json:"why,omitempty"`
}

// Coverage returns which shapes of descriptors rules match.
func (a *Admin) Coverage(ctx context.Context) ([]Shape, error) {
	var answer struct {
		Shapes []Shape `json:"shapes"`
	}
	err := a.call(ctx, http.MethodGet, "/admin/coverage", nil, &answer)
	return answer.Shapes, err
}

// A Reload is a change of rules or policies.
type Reload struct {
	At      time.Time `json:"at"`
	Source  string    `json:"source"`
	Changes []string  `json:"changes"`
}

// Reloads returns the last changes, the newest first.
func (a *Admin) Reloads(ctx context.Context) ([]Reload, error) {
	var answer struct {
		Reloads []Reload `json:"reloads"`
	}
	err := a.call(ctx, http.MethodGet, "/admin/reloads", nil, &answer)
	return answer.Reloads, err
}
