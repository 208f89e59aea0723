package memory

import "github.com/headgate-rls/headgate/limit"

// A table finds entries by their hashes. It grows by two buckets with each entry, so that no request waits for all of
// it to be made anew (linear hashing), and most buckets have one entry or none.
type table struct {
	buckets []*entry // the first of each, which has the next one
	mask    uint32   // of a hash; one bit less for buckets that are not there yet
	n       int
}

func (t *table) bucket(hash uint32) uint32 {
	if i := hash & t.mask; int(i) < len(t.buckets) {
		return i
	}
	return hash & (t.mask >> 1)
}

func (t *table) find(hash uint32, key *limit.Key) *entry {
	if len(t.buckets) == 0 {
		return nil
	}
	e := t.buckets[t.bucket(hash)]
	for e != nil && (e.hash != hash || !e.is(key)) {
		e = e.next
	}
	return e
}

func (t *table) add(e *entry) {
	for t.n++; 2*t.n > len(t.buckets); {
		t.grow()
	}
	t.put(e)
}

func (t *table) put(e *entry) {
	first := &t.buckets[t.bucket(e.hash)]
	e.next, *first = *first, e
}

// grow adds a bucket, and shares the entries of another one between the two.
func (t *table) grow() {
	n := uint32(len(t.buckets))
	if n > t.mask {
		t.mask = t.mask<<1 | 1
	}
	t.buckets = append(t.buckets, nil)
	from := &t.buckets[n&(t.mask>>1)]
	e := *from
	for *from = nil; e != nil; {
		next := e.next
		t.put(e)
		e = next
	}
}

func (t *table) remove(e *entry) {
	at := &t.buckets[t.bucket(e.hash)]
	for *at != e {
		at = &(*at).next
	}
	*at = e.next
	t.n--
}
