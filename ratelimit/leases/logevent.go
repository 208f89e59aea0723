package leases

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
