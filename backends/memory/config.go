package memory

import (
	"log/slog"
	"time"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/limit"
)

// Config says how much to keep. The zero Config is usable.
type Config struct {
	// MaxKeys bounds the number of keys with state; zero means 1,000,000.
	// Beyond it, state goes that still counts: of the limits with the same figures that
	// have most keys together, the least used of some keys, and one at its limit only if
	// all of these are. Of requests in flight these are the key's leases, whose releases
	// then find nothing.
	MaxKeys int
	// MaxLeases bounds the number of requests in flight under all keys
	// together; zero means 1,048,576. Beyond it, further ones are not granted a
	// lease: a Take that wants one fails with backends.ErrUnavailable and
	// backends.ErrNotApplied. Its holder keeps a lease, and releases and
	// renewals work. Takes at the same moment may exceed the bound by their
	// number.
	MaxLeases int
	// MaxRecords bounds the records of sliding logs under all keys together, of
	// 16 bytes each; zero means 8,388,608. Beyond it, a log that grows and has
	// more than minRecords is made coarser: see limit.State.Coarser. It refuses
	// for longer than it should, by the time between neighbours, and never admits
	// more. Other keys lose nothing.
	MaxRecords int
	// Log gets a warning, at most once a minute, when MaxKeys made state go. Nil
	// means nobody is.
	Log *slog.Logger
	// Now is the clock by which rows of the Registry expire. Nil means that
	// they do not.
	Now func() time.Time
}

const (
	defaultMaxKeys   = 1_000_000
	defaultMaxLeases = limit.MaxInFlight // some 150 bytes each

	defaultMaxRecords = 8 << 20

	// minRecords is how many records a log may have whatever others have. Its
	// memory may be twice that, so that all keys together keep no more than
	// MaxRecords and 2*minRecords for each of them.
	minRecords = 8

	// maxLogUnits bounds a sliding log, whose records take 16 bytes each.
	maxLogUnits = 1 << 20

	// grace is how long state stays beyond its end. Callers read the clock
	// before they get here, and may arrive out of order.
	grace = limit.Instant(time.Second / time.Microsecond)

	warnEvery = limit.Instant(time.Minute / time.Microsecond)
)

// Caps returns what the backend promises.
func Caps() backends.Caps {
	return backends.Caps{
		Name:       "memory",
		Algorithms: backends.Promises(limit.AllAlgorithms(), maxLogUnits, limit.Concurrency.MaxUnits(), 0),
		Atomicity:  backends.Whole,
		Local:      true,
		Precision:  time.Microsecond,
		MaxOps:     64,
		LongGroups: true,
	}
}
