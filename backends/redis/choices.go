package redis

import (
	"cmp"
	"slices"

	"github.com/headgate-rls/headgate/limit"
)

// Bits of an op that is an alternative of a simple request.
const (
	bitsChoice    = 2 // neither of the following
	bitsEndsGroup = 4 // it is the last of its group
	bitsEndsSet   = 6 // it is the last of its set
)

// addMarked adds the ops of a request with alternatives, if they are those of a simple request: the alternatives first,
// by their sets and groups, of which bits say where they end.
func (c *call) addMarked(k *keys, ops []limit.Op) bool {
	for i := range ops {
		key := c.key(k, &ops[i])
		if c.usedBy[key-1] == c.requests || ops[i].Limit.Is(limit.Logged|limit.Leased) {
			return false
		}
		c.usedBy[key-1] = c.requests
	}
	order := c.newOrder(ops)
	for j, i := range order {
		op, bits := ops[i], flagsOf(&ops[i])
		if op.Alternative() {
			bits |= markOf(op.Choice, ops, order[j+1:])
			if op.Limit.Below() == 0 {
				op.Limit = op.Limit.Strict() // an alternative without room takes nothing
			}
		}
		c.op(&op, c.key(k, &op), op.Cost, bits)
	}
	return true
}

// markOf returns the bits of an alternative before others of ops.
func markOf(choice limit.Choice, ops []limit.Op, others []uint8) int {
	var next limit.Choice
	if len(others) > 0 {
		next = ops[others[0]].Choice
	}
	switch {
	case next.Set != choice.Set:
		return bitsEndsSet
	case next.Group != choice.Group:
		return bitsEndsGroup
	}
	return bitsChoice
}

// newOrder notes in which order ops are sent.
func (c *call) newOrder(ops []limit.Op) (order []uint8) {
	c.orders = append(c.orders, uint8(len(ops)))
	from := len(c.orders)
	for i := range ops {
		c.orders = append(c.orders, uint8(i))
	}
	order = c.orders[from:]
	slices.SortStableFunc(order, func(i, j uint8) int {
		x, y := ops[i].Choice, ops[j].Choice
		return cmp.Or(cmp.Compare(x.Set-1, y.Set-1), cmp.Compare(x.Group, y.Group)) // set 0 is the last one
	})
	return order
}

// unmarked notes that the ops of a request with alternatives are sent as they are, and that the script says what it
// has chosen.
func (c *call) unmarked() { c.orders = append(c.orders, 0) }

// nextOrder returns the order in which the outcomes of the next request come: nil is its own order.
func (c *call) nextOrder(v *limit.Verdict, op func(i int) *limit.Op) (order []uint8) {
	if c.ordersRead == len(c.orders) {
		return nil // what most calls have
	}
	for i := range v.Outcomes {
		if op(i).Alternative() {
			from := c.ordersRead + 1
			c.ordersRead = from + int(c.orders[from-1])
			return c.orders[from:c.ordersRead]
		}
	}
	return nil
}

// choose marks what an admitted request is charged for whose outcomes came in order: of each set the first group whose
// ops have room, apart from shadows.
func choose(v *limit.Verdict, order []uint8, op func(i int) *limit.Op) {
	var done uint8 // the last set whose group is found
	for from, to := 0, 0; from < len(order) && op(int(order[from])).Alternative(); from = to {
		choice, room := op(int(order[from])).Choice, true
		for ; to < len(order) && op(int(order[to])).Choice == choice; to++ {
			i := int(order[to])
			room = room && (v.Outcomes[i].Admitted || op(i).Shadow)
		}
		if choice.Set == done || !room {
			continue
		}
		done = choice.Set
		for _, i := range order[from:to] {
			v.Outcomes[i].Chosen = true
		}
	}
}
