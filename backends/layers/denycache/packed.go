package denycache

import (
	"time"

	"github.com/headgate-rls/headgate/limit"
)

// A packed is a refusal in 40 bytes. A refusal is not stored if a figure is too large: a cost of 2^32 units, 2^30
// remaining units, or a wait of 407 days. Durations are whole microseconds, as stores return them.
type packed struct {
	limit *limit.Limit
	words [4]uint64 // at and retry; sent and retry; reset and retry; cost, remaining, room and recall
}

// The bits of the figures of a packed refusal. A retry is in what the first three words have left, lowest bits first.
const (
	atBits, sentBits, resetBits = 52, 50, 45
	costBits, remainingBits     = 32, 30
	roomBit, recallBit          = 62, 63

	lowRetry, midRetry = 64 - atBits, 64 - sentBits
	retryBits          = lowRetry + midRetry + 64 - resetBits
	never              = 1<<retryBits - 1 // limit.Never
)

func (r *refusal) pack() (p packed, fits bool) {
	at, sent, reset := uint64(r.at), uint64(r.sent/time.Microsecond), uint64(r.reset/time.Microsecond)
	cost, remaining, retry := uint64(r.cost), uint64(r.remaining), uint64(never)
	if r.retry != limit.Never {
		if retry = uint64(r.retry / time.Microsecond); retry >= never {
			return p, false
		}
	}
	if at>>atBits|sent>>sentBits|reset>>resetBits|cost>>costBits|remaining>>remainingBits != 0 {
		return p, false
	}
	p = packed{r.limit, [4]uint64{at | retry<<atBits, sent | retry>>lowRetry<<sentBits,
		reset | retry>>(lowRetry+midRetry)<<resetBits, cost | remaining<<costBits}}
	if r.room {
		p.words[3] |= 1 << roomBit
	}
	if r.recall {
		p.words[3] |= 1 << recallBit
	}
	return p, true
}

func (p *packed) unpack() refusal {
	w := &p.words
	micros := func(v uint64) time.Duration { return time.Duration(v) * time.Microsecond }
	retry := w[0]>>atBits | w[1]>>sentBits<<lowRetry | w[2]>>resetBits<<(lowRetry+midRetry)
	r := refusal{limit: p.limit, cost: int64(w[3] & (1<<costBits - 1)), at: limit.Instant(w[0] & (1<<atBits - 1)),
		sent: micros(w[1] & (1<<sentBits - 1)), room: w[3]>>roomBit&1 == 1, recall: w[3]>>recallBit == 1,
		remaining: int64(w[3] >> costBits & (1<<remainingBits - 1)), retry: limit.Never,
		reset: micros(w[2] & (1<<resetBits - 1))}
	if retry != never {
		r.retry = micros(retry)
	}
	return r
}
