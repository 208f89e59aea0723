package sqlstore

import (
	"sync"

	"github.com/headgate-rls/headgate/slots"
)

// knownMost bounds the windows that a process knows to have rows, which takes about a
// hundred bytes each.
const knownMost = 1 << 14

// knownWindows are windows that had a row when they were locked, so that it need not be made.
// That is a hint: the row may have been purged, or its epoch may be over.
type knownWindows struct {
	mu  sync.Mutex
	all map[slots.WindowKey]struct{}
}

func (k *knownWindows) has(w slots.WindowKey) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	_, ok := k.all[w]
	return ok
}

// add keeps a window. Which one makes room for it is left to chance.
func (k *knownWindows) add(w slots.WindowKey) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if _, ok := k.all[w]; !ok && len(k.all) >= knownMost {
		for old := range k.all {
			delete(k.all, old)
			break
		}
	}
	if k.all == nil {
		k.all = make(map[slots.WindowKey]struct{})
	}
	k.all[w] = struct{}{}
}
