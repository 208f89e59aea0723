package leases

import (
	"github.com/headgate-rls/headgate/internal/kit/metrics"
)

// An Event is something that happens to leases.
type Event uint8

// The events.
const (
	Acquired  Event = iota
	Repeated        // acquired again by a repeated call
	Released        // ended, because its request has ended
	Renewed         // expires later than before
	Expired         // had expired when its request's end was reported
	Unknown         // had ended, or was never granted, when its end was reported
	Overtaken       // refused, because its end had arrived before
	Abandoned       // ended, because nobody received the answer that granted it
	Lost            // could not be ended, and is left to expire
	Reaped          // ended, because its proxy is gone
	NumEvents
)

// String returns the event's metric label.
func (e Event) String() string {
	return [NumEvents]string{"acquired", "repeated", "released", "renewed", "expired", "unknown", "overtaken", "abandoned",
		"lost", "reaped"}[e]
}

// Metrics has the counters of what a [Tracker] counts. Its methods may be called
// concurrently and must bound the number of labels they accept.
type Metrics interface {
	// Lease returns the counters of a rule's leases, by [Event]. Both labels may be empty.
	Lease(domain, rule string) *metrics.Series
	// Reservation returns the counters of a rule's reservations, by [ReservationEvent], and
	// ReservedUnits those of their units, by [UnitKind].
	Reservation(domain, rule string) *metrics.Series
	ReservedUnits(domain, rule string) *metrics.Series
}

// A LogEvent is what happens to entries of Envoy's access log, which renew and end leases,
// and to the streams that bring them.
type LogEvent uint8

// The events of the access log.
const (
	EntryRenews    LogEvent = iota
	EntryReleases           // an end
	EntryIgnored            // has no lease, or is neither periodic nor an end
	EntryMalformed          // is not a log entry
	EntryDropped            // exceeded MaxEntries
	StreamOpened
	StreamClosed
	StreamRefused // exceeded MaxStreams or MaxStreamsPerPeer
	NumLogEvents
)

// String returns the event's metric label.
func (e LogEvent) String() string {
	return [NumLogEvents]string{"renews", "releases", "ignored", "malformed", "dropped", "opened", "closed", "refused"}[e]
}
