package web

import (
	"context"
	"net/http"
)

// An answer takes its memory before it is made: a client that asks for much and reads it slowly would have the server
// keep it, many times over. Lists are kept as the rows of which they are made, and written as text a few at a time.

// freeAnswer is how many bytes of an answer do not count, for the same reason as freeBody.
const freeAnswer = 16 << 10

var errNoAnswer = Refuse(http.StatusServiceUnavailable,
	"there is no room in memory for the answer, as clients read others slowly; try again later, or ask for fewer rows")

// Keep counts the bytes that the answer to a request keeps until it has been read, in the place of those counted
// before. It is an error if there is no room.
func Keep(w http.ResponseWriter, r *http.Request, bytes int) error {
	if KeepIn(r.Context(), bytes) {
		return nil
	}
	w.Header().Set("Retry-After", "1")
	return errNoAnswer
}

// KeepIn is Keep by the context of the request. It reports whether there is room. Several goroutines may call it.
func KeepIn(ctx context.Context, bytes int) bool {
	k, _ := ctx.Value(keeperKey{}).(*keeper)
	if k == nil || k.grantsAnswer(max(0, bytes-freeAnswer)) {
		return true
	}
	k.refused("an answer")
	return false
}

// refused notes that there is no room for something of the request.
func (k *keeper) refused(what string) {
	k.stats.NoMemory.Inc()
	if log, suppressed := k.stats.warning(isFull); log != nil {
		log.Warn("no room in memory for a request over HTTP", "for", what, "client", k.client, "path", printable(k.path),
			"keep_mib", k.account.Pool.Used()>>20, "suppressed", suppressed)
	}
}
