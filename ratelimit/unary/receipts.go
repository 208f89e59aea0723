package unary

import "time"

// A receipt is what to do about an answer that was sent, should it turn out that
// the client did not take it.
type receipt struct {
	id   uint32
	size int // bytes that undo keeps in memory
	at   time.Time
	undo func()
}

// receipts are those of the answers that were sent last, the oldest first.
type receipts struct {
	list  []receipt // of which those from first on count
	first int
	bytes int
}

// Bounds of what is kept of answers. A client's reset is a round trip behind an
// answer, so more is of no use.
const (
	maxReceipts     = 1024
	maxReceiptBytes = 256 << 10
	receiptLife     = time.Second
	receiptSize     = 48 // bytes of a receipt itself
)

// add keeps a receipt. At a bound the oldest go.
func (r *receipts) add(id uint32, size int, undo func(), now time.Time) {
	r.prune(now)
	size += receiptSize
	for len(r.list)-r.first >= maxReceipts || r.bytes+size > maxReceiptBytes && r.first < len(r.list) {
		r.drop()
	}
	if r.first > 0 && len(r.list) == cap(r.list) { // before it grows
		n := copy(r.list, r.list[r.first:])
		clear(r.list[n:])
		r.list, r.first = r.list[:n], 0
	}
	r.list = append(r.list, receipt{id, size, now, undo})
	r.bytes += size
}

// prune drops the receipts that are too old.
func (r *receipts) prune(now time.Time) {
	for r.first < len(r.list) && now.Sub(r.list[r.first].at) > receiptLife {
		r.drop()
	}
	if r.first == len(r.list) {
		r.list, r.first = r.list[:0], 0
	}
}

// drop drops the oldest.
func (r *receipts) drop() {
	r.bytes -= r.list[r.first].size
	r.list[r.first] = receipt{}
	r.first++
}

// take returns what to do about the answer of a stream, once.
func (r *receipts) take(id uint32) func() {
	for i := r.first; i < len(r.list); i++ {
		if r.list[i].id == id {
			undo := r.list[i].undo
			r.list[i].undo = nil
			return undo
		}
	}
	return nil
}
