package unary

import "sync/atomic"

// largeRead is how many bytes a client has sent at once that asks for much.
const largeRead = 8 << 10

// floods are the connections that ask for much at this moment. While there are many of them, all together leave a core
// to others: as long as every core has work, Go looks for what has arrived on other connections every 10 ms only.
type floods struct {
	active atomic.Int64 // that are handled or wait
	most   int64        // that are handled without a place
	places chan struct{}
}

// freeFloods is how many connections may flood for each core before they have to take turns.
const freeFloods = 4

func (f *floods) init(cores int) {
	f.most, f.places = int64(freeFloods*cores), make(chan struct{}, max(1, cores-1))
}

// enter waits for a place if there are many, and reports whether there is one to leave.
func (f *floods) enter() (place bool) {
	if f.active.Add(1) <= f.most {
		return false
	}
	f.places <- struct{}{}
	return true
}

func (f *floods) leave(place bool) {
	f.active.Add(-1)
	if place {
		<-f.places
	}
}
