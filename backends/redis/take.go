package redis

import (
	"encoding/binary"
	"math"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/backends/redis/script"
	"github.com/headgate-rls/headgate/limit"
)

// Bits of an op beside its key, as the scripts read them.
const (
	bitShadow = 1
	bitEach   = 8 // see choices.go for those between
	keyUnit   = 16
)

// Kinds of a request beside its number of ops.
const (
	simpleKind = 1
	refundKind = 2
	settleKind = 3
	commonKind = 4 // added to others: one op is about a lease, the others are as in a simple request
	choiceKind = 8 // some ops are alternatives, and the request is not simple
	opsUnit    = 16
)

// setUnit is what sets of alternatives are counted in, in groups.
const setUnit = 1 << 8

// heldUnit is what the key that holds an op back is counted in, in keys.
const heldUnit = 1 << 20

// A call is one call of a script: requests, or parts of requests, whose
// keys live in one place.
type call struct {
	layout   *layoutRow
	script   *script.Script // chosen when the call is sealed
	numbers  bool           // INCRBY counts as well, in windows that are numbers
	slot     int            // of a Cluster
	requests int
	at       limit.Instant     // of the last request, negative for the server's clock
	index    map[limit.Key]int // by what keys.identity says: position among the keys, from 1
	keyText  []byte            // of all keys, one after the other
	keyEnds  []int             // in keyText
	keys     []string          // once the call has arguments
	usedBy   []int             // per key: the last request with it
	weight   int               // see packer.weight
	blob     []byte
	shape    int         // where the shape of the last request is in blob
	mixed    bool        // some request is not simple
	limits   []sentLimit // that follow the requests
	salt     []byte
	holders  []string // of leases

	orders     []uint8 // by request with alternatives: how many ops it has, and their order; 0 if it is the request's
	ordersRead int     // how much of that the answers have taken

	calendars bool          // some limit has windows of the calendar, by the server's clock
	guess     limit.Instant // what that clock may show

	insists  bool // Redis has declined it once
	declined bool // the common script has: the full one must decide
	withText bool // EVAL instead of EVALSHA
	args     []any
	cmd      *redis.StringCmd
	err      error
	reply    string
	clock    limit.Instant
}

// A sentLimit is a limit as the script gets it. The windows of a calendar are those
// of an instant, negative for the server's clock; of other limits the instant is 0.
type sentLimit struct {
	*limit.Limit
	at limit.Instant
}

// Flags of a slice, as script/constants.lua has them.
const (
	flagZSet    = 1
	flagOthers  = 2  // some limits are no fixed windows
	flagNumbers = 4  // INCRBY counts as well, in windows that are numbers
	flagFull    = 8  // Redis has declined the call once. What is there is decided all the same.
	flagChoices = 16 // for the common script: some requests have alternatives
)

// headerSize is that of what a blob begins with: flags and two counts.
const headerSize = 3 * 8

func (c *call) reset(layout *layoutRow) {
	if c.index == nil {
		c.index = map[limit.Key]int{}
	}
	clear(c.index)
	clear(c.keys)
	clear(c.args)
	clear(c.limits)
	clear(c.holders)
	*c = call{
		layout: layout,
		index:  c.index, keyText: c.keyText[:0], keyEnds: c.keyEnds[:0], keys: c.keys[:0],
		usedBy: c.usedBy[:0], limits: c.limits[:0], holders: c.holders[:0], orders: c.orders[:0],
		blob: append(c.blob[:0], make([]byte, headerSize)...), salt: c.salt[:0], args: c.args[:0],
	}
}

// add begins a request of n ops at an instant.
func (c *call) add(at limit.Instant, n int) {
	c.requests++
	c.at = at
	c.blob = appendFloat(c.blob, float64(at))
	c.shape = len(c.blob)
	c.blob = appendFloat(c.blob, float64(opsUnit*n+simpleKind))
}

// setKind changes the kind of the last request, which has n ops.
func (c *call) setKind(n, kind int) {
	c.mixed = true
	putFloat(c.blob[c.shape:], float64(opsUnit*n+kind))
}

// addOps adds the ops of the request begun last, or of a part of it.
func (c *call) addOps(k *keys, ops []limit.Op) {
	alternatives := limit.HasAlternatives(ops)
	if alternatives && c.addMarked(k, ops) {
		return
	}
	leased, simple := 0, true
	for i := range ops {
		key := c.key(k, &ops[i])
		if ops[i].Limit.Is(limit.Leased) {
			leased++
		}
		simple = simple && c.usedBy[key-1] != c.requests && !ops[i].Limit.Is(limit.Logged)
		c.usedBy[key-1] = c.requests
		if by := limit.HeldBy(ops, i); by >= 0 {
			key += heldUnit * c.key(k, &ops[by])
		}
		c.op(&ops[i], key, ops[i].Cost, flagsOf(&ops[i]))
	}
	kind := 0
	if simple && leased == 1 {
		kind = commonKind
	}
	switch {
	case limit.Settles(ops):
		c.setKind(len(ops), kind+settleKind)
		for i := range ops {
			c.blob = appendFloat(c.blob, float64(ops[i].AsOf))
		}
	case alternatives:
		c.setKind(len(ops), choiceKind)
		c.unmarked()
		for i := range ops {
			c.blob = appendFloat(c.blob, float64(setUnit*int(ops[i].Choice.Set)+int(ops[i].Choice.Group)))
		}
	case leased > 0 || !simple:
		c.setKind(len(ops), kind)
	}
}

func flagsOf(op *limit.Op) int {
	bits := 0
	if op.Shadow {
		bits |= bitShadow
	}
	if op.ChargesEach() {
		bits |= bitEach
	}
	return bits
}

func (c *call) op(op *limit.Op, key int, cost int64, bits int) {
	c.blob = appendFloat(c.blob, float64(key*keyUnit|bits))
	if op.Limit.Is(limit.Leased) {
		c.blob = appendFloat(c.blob, c.leaseCost(op, cost))
	} else {
		// A cost beyond any capacity need not be exact, only a double.
		c.blob = appendFloat(c.blob, float64(min(max(cost, -1<<53), 1<<53)))
	}
	c.blob = appendFloat(c.blob, float64(c.limit(op.Limit)))
}

// leaseCost encodes an op about a lease for the script: see script/lease_take.lua.
func (c *call) leaseCost(op *limit.Op, cost int64) float64 {
	const half = 1 << 21
	if cost == 0 && op.Holder == "" {
		return 0
	}
	place := 0
	if op.Holder != "" {
		if n := len(c.holders); n == 0 || c.holders[n-1] != op.Holder {
			c.holders = append(c.holders, op.Holder)
		}
		place = len(c.holders)
		if op.Ending == limit.EndOwner && cost < -1 {
			c.holders = append(c.holders, strconv.FormatInt(min(-max(cost, -1<<53), 1<<53), 10))
		}
	}
	units := min(max(cost, -limit.MaxInFlight), 1)
	return float64(units+half) + 2*half*float64(int(op.Ending)+8*place)
}

// refund adds a request that gives ops back, each as of an instant.
func (c *call) refund(k *keys, at limit.Instant, ops []limit.Op, asOf []limit.Instant) {
	c.add(at, len(ops))
	c.setKind(len(ops), refundKind)
	for i := range ops {
		c.op(&ops[i], c.key(k, &ops[i]), ops[i].Cost, 0)
	}
	for _, at := range asOf {
		c.blob = appendFloat(c.blob, float64(at))
	}
}

// refunded reads whether all of a refund was given back.
func (c *call) refunded(r *reader) (all bool, err error) {
	if c.err != nil {
		return false, c.err
	}
	switch status := r.number(); {
	case status > 1:
		return false, c.unreadable(status)
	case !r.ok || status < 0:
		return false, errBadReply
	default:
		return status == 1, nil
	}
}

// laterKeys is added to the status of a key whose value has the mark of a later version: see script/unreadable.lua.
const laterKeys = 1 << 20

// unreadable is the error of a status that names a key.
func (c *call) unreadable(status int64) error {
	kind, at := backends.ErrCorrupt, status-2
	if at >= laterKeys {
		kind, at = backends.ErrLater, at-laterKeys
	}
	if at < int64(len(c.keys)) {
		return unreadable(kind, c.keys[at])
	}
	return unreadable(kind, "")
}

// limit returns the position of l among the call's limits, from 0. Where it
// is not among the last few it is sent again.
func (c *call) limit(l *limit.Limit) int {
	s := sentLimit{Limit: l}
	if l.Calendar() {
		s.at = c.at
		c.calendars = c.calendars || c.at < 0
	}
	for i := len(c.limits) - 1; i >= 0 && i >= len(c.limits)-8; i-- {
		if c.limits[i] == s {
			return i
		}
	}
	c.limits = append(c.limits, s)
	return len(c.limits) - 1
}

// key returns the position of op's key in KEYS, from 1.
func (c *call) key(k *keys, op *limit.Op) int {
	key := k.identity(op, c.at)
	if i, ok := c.index[key]; ok {
		return i
	}
	c.keyText = k.appendKey(c.keyText, op, c.at)
	c.keyEnds = append(c.keyEnds, len(c.keyText))
	c.usedBy = append(c.usedBy, 0)
	c.index[key] = len(c.keyEnds)
	return len(c.keyEnds)
}

// cutKeys fills in the keys, which share the memory of one string.
func (c *call) cutKeys() {
	text, from := string(c.keyText), 0
	c.keys = c.keys[:0]
	for _, end := range c.keyEnds {
		c.keys = append(c.keys, text[from:end])
		from = end
	}
}

// seal completes the blob by its counts and limits. The blob may be sealed
// again, for another try.
func (c *call) seal() []byte {
	putFloat(c.blob, c.choose())
	putFloat(c.blob[8:], float64(c.requests))
	putFloat(c.blob[16:], float64(len(c.limits)))
	blob := c.blob
	for _, l := range c.limits {
		x, y := l.Figures()
		algorithm, window := int64(l.Algorithm()), l.Window().Microseconds()
		if l.Calendar() {
			algorithm = calendarWindow
			x, y, window = c.calendarWindow(l)
		}
		blob = appendFloat(blob, float64(algorithm))
		blob = appendFloat(blob, float64(l.Capacity()))
		blob = appendFloat(blob, float64(window))
		blob = appendFloat(blob, float64(x))
		blob = appendFloat(blob, float64(y))
		blob = appendFloat(blob, float64(l.Below()))
	}
	c.blob = blob[:len(c.blob)]
	return blob
}

// choose chooses the script, and returns the flags that it gets.
func (c *call) choose() float64 {
	flags := c.layout.flag
	if c.numbers {
		flags += flagNumbers
	}
	if c.insists {
		flags += flagFull
	}
	c.script = c.layout.full
	if c.layout.common == nil || c.mixed || c.insists || c.declined || len(c.keyEnds) > script.MostKeys {
		return flags
	}
	others := 0.0
	for _, l := range c.limits {
		switch {
		case l.Calendar():
			return flags
		case l.Algorithm() == limit.FixedWindow && l.Below() <= 0:
		case (l.Algorithm() == limit.SlidingWindow || l.Algorithm() == limit.TokenBucket) && l.Below() < 0:
			others = flagOthers
		default:
			return flags
		}
	}
	c.script = c.layout.common
	if len(c.orders) > 0 {
		flags += flagChoices
	}
	return flags + others
}

// passedOn reports whether the common script has left the call to the full one, which is to get it next.
func (c *call) passedOn() bool {
	if c.script != c.layout.common || c.reply != script.Declined {
		return false
	}
	c.declined, c.withText = true, false
	return true
}

// calendarWindow is what the scripts call the algorithm of a limit with a calendar. No
// [limit.Algorithm] has that number.
const calendarWindow = 256

// calendarWindow returns what the script must know of the windows of a calendar.
func (c *call) calendarWindow(l sentLimit) (start, end, next int64) {
	at, sign := l.at, limit.Instant(-1)
	if at < 0 {
		at, sign = c.guess, 1
	}
	s, e, n := l.CalendarWindows(at)
	return int64(s), int64(e), int64(sign * n)
}

// misjudged reports whether the script has answered that its server's clock is in
// another window than the call says, and nothing else. The clock is the guess of
// the next try.
func (c *call) misjudged() bool {
	if !c.calendars || len(c.reply) < 8 {
		return false
	}
	r := reader{s: c.reply, ok: true}
	c.guess = limit.Instant(r.number())
	return len(r.s) == 0
}

func appendFloat(b []byte, f float64) []byte {
	return binary.LittleEndian.AppendUint64(b, math.Float64bits(f))
}

func putFloat(b []byte, f float64) { binary.LittleEndian.PutUint64(b, math.Float64bits(f)) }

// arguments builds the command. Arguments are pointers where that saves the
// driver's boxing.
func (c *call) arguments() []any {
	blob := c.seal()
	c.args = c.args[:0]
	if c.withText {
		c.args = append(c.args, "eval", &c.script.Text)
	} else {
		c.args = append(c.args, "evalsha", &c.script.SHA)
	}
	c.cutKeys()
	c.args = append(c.args, strconv.Itoa(len(c.keys)))
	for i := range c.keys {
		c.args = append(c.args, &c.keys[i])
	}
	c.args = append(c.args, blob)
	if len(c.salt) > 0 || len(c.holders) > 0 {
		c.args = append(c.args, c.salt)
	}
	for i := range c.holders {
		c.args = append(c.args, &c.holders[i])
	}
	return c.args
}

// A reader takes a reply apart.
type reader struct {
	s  string
	ok bool
}

func (r *reader) number() int64 {
	if len(r.s) < 8 {
		r.ok = false
		return 0
	}
	s := r.s[:8]
	r.s = r.s[8:]
	bits := uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 |
		uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56
	return int64(math.Float64frombits(bits))
}

// read begins to take the reply apart.
func (c *call) read() reader {
	c.ordersRead = 0
	r := reader{s: c.reply, ok: true}
	if c.err == nil {
		c.clock = limit.Instant(r.number())
	}
	return r
}

// verdict reads the answer to the next request into v, which has room for the
// outcomes and has the request's instant, and the instants charged into charged
// if that is not nil. op returns the op of an outcome.
func (c *call) verdict(r *reader, v *limit.Verdict, charged []limit.Instant, op func(i int) *limit.Op) {
	order := c.nextOrder(v, op)
	status := r.number()
	switch {
	case status > 1:
		v.Err = c.unreadable(status)
		return
	case status == -1 && c.insists:
		v.Err = errPartly
		return
	}
	v.Admitted = status == 1
	last := len(v.Outcomes) - 1
	settles := op(last).AsOf != 0
	for i := range v.Outcomes {
		if len(order) > 0 {
			i = int(order[i])
		}
		if settles && (i > 0 || last == 0) {
			v.Outcomes[i] = limit.Outcome{Admitted: true, Taken: r.number(), Remaining: r.number(),
				Reset: time.Duration(r.number()) * time.Microsecond}
			continue
		}
		at, o, out := r.outcome(&v.Outcomes[i], v.At), op(i), &v.Outcomes[i]
		if o.Limit.Is(limit.Leased) {
			n := r.number()
			out.InFlight, out.Held = n/2, n%2 == 1
		}
		if settles {
			out.Taken = r.number()
		}
		if o.Alternative() && c.script == c.layout.full {
			out.Chosen = r.number() == 1
		}
		if !out.Admitted && o.Overflows() {
			out.Taken, out.Remaining = out.Remaining, 0
		}
		if charged != nil {
			charged[i] = at
		}
	}
	if v.Admitted && c.script != c.layout.full {
		choose(v, order, op)
	}
	if !r.ok || status < 0 {
		v.Err = errBadReply
	}
}

// outcome reads an outcome of a request at instant now. It returns the instant
// that the op was charged at.
func (r *reader) outcome(out *limit.Outcome, now limit.Instant) limit.Instant {
	remaining, reset := r.number(), r.number()
	if out.Admitted = remaining >= 0; !out.Admitted {
		remaining = -1 - remaining
	}
	out.Remaining = remaining
	if reset >= 0 {
		out.Retry, out.Reset = 0, time.Duration(reset)*time.Microsecond
		return now
	}
	out.Reset = time.Duration(-1-reset) * time.Microsecond
	if retry := r.number(); retry < 0 {
		out.Retry = limit.Never
	} else {
		out.Retry = time.Duration(retry) * time.Microsecond
	}
	return limit.Instant(r.number())
}
