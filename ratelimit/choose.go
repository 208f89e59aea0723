package ratelimit

import (
	"slices"
	"strings"

	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/limit"
)

// Descriptors whose rules have the same `choose` are the candidates of a choice, of which one is charged. Their ops
// are alternatives of one set, so that the store chooses in the step in which it charges. A choice of one candidate is
// decided as if its rule had no choose: so are reports at the end of a request, and refunds.

// A choice is the candidates of one name among a call's descriptors.
type choice struct {
	name       string
	candidates []int // the numbers of their decisions, in the order in which they are tried
	winner     int   // of candidates' numbers; none if no candidate has room, or the request is refused
	free       int   // the candidate that always has room, because nothing limits it; none if there is none
	spare      int   // the op of free, or of nobody in shadow mode; none if there is none
}

// none is the number of no decision and no op.
const none = -1

// chooses reports whether decision i is a candidate: it asks for something, or what is left.
func (c *Call) chooses(i int) bool {
	d := &c.Request.Descriptors[i]
	v := c.Decisions[i].view
	return v != nil && v.rule.Choose != "" && !d.Refund && !c.Request.done() && c.reserving(d, v) != reports
}

// findChoices groups candidates by the name of what they are chosen for, and sorts them.
func (c *Call) findChoices() {
	for i := range c.Decisions {
		if !c.chooses(i) {
			continue
		}
		c.Decisions[i].candidate = true
		ch := c.choiceOf(c.Decisions[i].view.rule.Choose)
		at := len(ch.candidates)
		for at > 0 && c.Decisions[ch.candidates[at-1]].view.rule.Prefer > c.Decisions[i].view.rule.Prefer {
			at--
		}
		ch.candidates = slices.Insert(ch.candidates, at, i)
	}
}

// choiceOf returns the choice of a name. It makes one if the call has none yet.
func (c *Call) choiceOf(name string) *choice {
	for n := range c.choices {
		if c.choices[n].name == name {
			return &c.choices[n]
		}
	}
	n := len(c.choices)
	c.choices = grow(c.choices, n+1)
	ch := &c.choices[n]
	*ch = choice{name: name, candidates: ch.candidates[:0], winner: none, free: none, spare: none}
	return ch
}

// addChoices makes the ops of the candidates of each choice alternatives of each other.
func (c *Call) addChoices(b *Batch) *Error {
	decided := len(c.Ops) // before spare ops
	for n := range c.choices {
		if len(c.choices[n].candidates) > 1 {
			if err := c.addChoice(b, n, decided); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *Call) addChoice(b *Batch, n, decided int) *Error {
	ch, conf := &c.choices[n], &b.engine.conf
	first, spare := none, limit.Choice{}
	choice := limit.Choice{Set: uint8(n + 1)} // of at most MaxOps choices and candidates with ops
	for _, i := range ch.candidates {
		from, to := c.opsOf(i, decided)
		switch {
		case from == to && ch.free != none:
			continue // it comes after one that always has room
		case from == to:
			ch.free, spare = i, choice
		case first == none:
			first = from
		case !conf.Caps.Together(c.Ops[first].Key.Group, c.Ops[from].Key.Group):
			return invalid("descriptors[%d] and another one choose %q, and differ in more than their last value: "+
				"backend %s cannot choose between them in one step", i, ch.name, conf.Caps.Title())
		}
		for at := from; at < to; at++ {
			op := &c.Ops[at]
			op.Choice, op.Shadow, op.Each = choice, c.views[at].Shadow, false
		}
		choice.Group++
	}
	if ch.free == none && conf.ShadowMode {
		spare = choice // who comes last is nobody
	}
	if first == none || spare.Set == 0 {
		return nil
	}
	if len(c.Ops) == conf.Caps.MaxOps {
		return tooManyOps(conf.Caps.MaxOps)
	}
	ch.spare = len(c.Ops)
	like := c.Ops[first]
	c.views = append(c.views, c.views[first])
	// It asks about a counter that is asked about anyway, takes nothing, and as a shadow has room.
	c.Ops = append(c.Ops, limit.Op{Key: like.Key, Limit: like.Limit, Shadow: true, Choice: spare})
	return nil
}

// opsOf returns where the ops of decision i begin and end, those that keep its reservation included, in the first
// decided ops.
func (c *Call) opsOf(i, decided int) (from, to int) {
	if i+1 < len(c.Decisions) {
		decided = c.Decisions[i+1].First
	}
	return c.Decisions[i].First, decided
}

// choose notes which candidate won each choice, as the verdict says.
func (c *Call) choose(ch *choice) {
	switch {
	case ch.winner != none: // see favour
	case ch.spare == none && ch.free != none:
		ch.winner = ch.free
	case ch.spare != none && c.Verdict.Outcomes[ch.spare].Chosen:
		ch.winner = ch.free
	case len(ch.candidates) == 1:
		if !c.Decisions[ch.candidates[0]].status.OverLimit {
			ch.winner = ch.candidates[0]
		}
	default:
		won := func(i int) bool { d := &c.Decisions[i]; return d.n > 0 && c.Verdict.Outcomes[d.First].Chosen }
		if at := slices.IndexFunc(ch.candidates, won); at >= 0 {
			ch.winner = ch.candidates[at]
		}
	}
}

// concludeChoice completes the decisions of a choice, and returns the one that refuses the request: if no candidate
// has room, the one with the shortest wait.
func (c *Call) concludeChoice(ch *choice) (refuses *Decision) {
	c.choose(ch)
	for _, i := range ch.candidates {
		d := &c.Decisions[i]
		if !d.status.OverLimit {
			c.passOver(ch)
			return nil
		}
		if refuses == nil || refuses.outweighs(d) {
			refuses = d
		}
	}
	return refuses
}

// passOver has the outcomes say which candidates are not charged because another one is, or would be. Those that a
// failure policy has answered keep that outcome.
func (c *Call) passOver(ch *choice) {
	for _, i := range ch.candidates {
		d := &c.Decisions[i]
		if i != ch.winner && d.Cause == nil && (d.status.OverLimit || ch.winner != none) {
			d.Outcome, d.Near = OutcomeNotChosen, nil
		}
	}
}

// favour has the candidates of a choice be answered alike while the store fails: by the most lenient of their
// policies. If that lets them pass, the first to which it applies is named.
func (c *Call) favour(ch *choice) {
	lenient := descriptors.FailDefault
	for _, i := range ch.candidates {
		d := &c.Decisions[i]
		p := d.policy
		if d.n == 0 {
			p = descriptors.FailAllow // nothing limits it
		}
		if lenient == descriptors.FailDefault || lenient != p && stricter(lenient, p) == lenient {
			lenient, ch.winner = p, i
		}
	}
	if lenient != descriptors.FailAllow {
		ch.winner = none
	}
	for _, i := range ch.candidates {
		if d := &c.Decisions[i]; d.n > 0 {
			d.policy = lenient
		}
	}
}

// chosen returns the last value of each winner's descriptor, by the choice's name; nil if no choice has a winner.
func (c *Call) chosen() (values map[string]string) {
	if c.Response.OverLimit || c.Response.Err != nil {
		return nil
	}
	for _, ch := range c.choices {
		if ch.winner == none {
			continue
		}
		if values == nil {
			values = map[string]string{}
		}
		entries := c.Decisions[ch.winner].Entries
		values[ch.name] = strings.Clone(entries[len(entries)-1].Value)
	}
	return values
}

// addChosen adds which candidate won each choice to the response's dynamic_metadata, and before it what the rules of
// the winners say under `metadata`: of two that say the same the one whose choice comes first holds.
func (c *Call) addChosen(encoder Encoder) {
	if c.Response.OverLimit || c.Response.Err != nil {
		return
	}
	winners, last := 0, (*choice)(nil)
	for n := range slices.Backward(c.choices) {
		ch := &c.choices[n]
		if ch.winner == none {
			continue
		}
		winners, last = winners+1, ch
		if meta := c.Decisions[ch.winner].view.meta; meta != nil {
			c.Response.metadata = append(c.Response.metadata, meta)
		}
	}
	switch winners {
	case 0:
	case 1:
		d := &c.Decisions[last.winner]
		c.Response.metadata = append(c.Response.metadata, d.view.told(encoder, last.name, d.Entries[len(d.Entries)-1].Value))
	default:
		c.Response.metadata = append(c.Response.metadata, encodeChosen(encoder, c.chosen()))
	}
}

// A toldChoice is the metadata about the winner of a choice, which is the same for many calls.
type toldChoice struct {
	value   string
	encoded []byte
}

// told returns the metadata about a choice that a descriptor with this last value has won.
func (v *ruleView) told(encoder Encoder, name, value string) []byte {
	if t := v.won.Load(); t != nil && t.value == value {
		return t.encoded
	}
	t := &toldChoice{strings.Clone(value), encodeChosen(encoder, map[string]string{name: value})}
	if len(value) <= maxTold {
		v.won.Store(t)
	}
	return t.encoded
}

// maxTold bounds the values whose metadata rules keep, in bytes.
const maxTold = 256

func encodeChosen(encoder Encoder, values map[string]string) []byte {
	names := make(map[string]any, len(values))
	for name, value := range values {
		names[name] = value
	}
	return encoder.Struct(map[string]any{"choose": names})
}
