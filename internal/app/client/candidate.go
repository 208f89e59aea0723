package client

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"time"
)

// A Candidate is what a process has counted of the live rules and of those on trial.
type Candidate struct {
	Deciding bool      `json:"deciding"`
	Loaded   time.Time `json:"loaded,omitzero"`
	Error    string    `json:"error,omitempty"`
	Sample   float64   `json:"sample"`
	Since    time.Time `json:"since,omitzero"`
	CandidateCounts
	Dropped int64 `json:"dropped"`
	Failed  int64 `json:"failed"`
	// Forgotten are counters in use that were dropped for want of room.
	Forgotten int64 `json:"forgotten"`
	Rules     []struct {
		Rule string `json:"rule"`
		CandidateCounts
		Change int64 `json:"change"`
	} `json:"rules"`
	Keys []struct {
		Key          string `json:"key"`
		Rule         string `json:"rule"`
		Limit        string `json:"limit"`
		NewlyRefused int64  `json:"newly_refused"`
	} `json:"keys"`
}

// CandidateCounts are requests by what the live rules and those on trial answered.
type CandidateCounts struct {
	Requests      int64 `json:"requests"`
	RefusedOld    int64 `json:"refused_old"`
	RefusedNew    int64 `json:"refused_new"`
	NewlyRefused  int64 `json:"newly_refused"`
	NewlyAdmitted int64 `json:"newly_admitted"`
}

// Candidate returns what has come of the rules on trial since a duration before now, such as 1h.
func (a *Admin) Candidate(ctx context.Context, since string, top int) (c Candidate, err error) {
	path := fmt.Sprintf("/admin/candidate?since=%s&top=%d", url.QueryEscape(since), top)
	err = a.call(ctx, http.MethodGet, path, nil, &c)
	return c, err
}
