package ratelimit

import (
	"slices"
	"strconv"

	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/limit"
)

// A LimitLabel is what metrics call one of a rule's limits.
type LimitLabel struct {
	Name  string
	Limit *limit.Limit
}

// LimitLabels returns the labels of r's limits: their names, or their numbers
// from 1 where they have none, and "concurrency" for its limit on requests in
// flight, which is the last. No two are the same.
func LimitLabels(r *descriptors.Rule) []LimitLabel {
	labels := make([]LimitLabel, 0, len(r.Limits)+1)
	add := func(name string, l *limit.Limit) {
		for slices.ContainsFunc(labels, func(other LimitLabel) bool { return other.Name == name }) {
			name += "'"
		}
		labels = append(labels, LimitLabel{name, l})
	}
	for i := range r.Limits {
		name := r.Limits[i].Name
		if name == "" {
			name = strconv.Itoa(i + 1)
		}
		add(name, r.Limits[i].Limit)
	}
	if r.Concurrency != nil {
		add("concurrency", r.Concurrency.Limit)
	}
	return labels
}
