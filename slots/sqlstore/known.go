package sqlstore

import (
	"sync"

	"github.com/headgate-rls/headgate/slots"
)

// knownMost bounds the windows that a process knows to have rows, which takes about a
// hundred bytes each.
const knownMost = 1 << 14

// knownWindows are windows that had a row when they were locked, so that it need not be made, with
// the count that was seen last. That is a hint: the row may have been purged, its epoch may be over,
// and others may have claimed places.
type knownWindows struct {
	mu  sync.Mutex
	all map[slots.WindowKey]int64
}

func (k *knownWindows) count(w slots.WindowKey) (count int64, known bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	count, known = k.all[w]
	return count, known
}

// set keeps a window. Which one makes room for it is left to chance.
func (k *knownWindows) set(w slots.WindowKey, count int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if _, ok := k.all[w]; !ok && len(k.all) >= knownMost {
		for old := range k.all {
			delete(k.all, old)
			break
		}
	}
	if k.all == nil {
		k.all = make(map[slots.WindowKey]int64)
	}
	k.all[w] = count
}
