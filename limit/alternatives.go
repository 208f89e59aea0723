package limit

// decideAlternatives answers a request with alternatives that was not granted before. While it decides, Chosen marks
// the alternatives that are tried or charged.
func decideAlternatives(states []State, req *Request, now Instant, v *Verdict, next []State) (changes Changes) {
	ops := req.Ops
	changes = moveAhead(states, next, ops, now)
	for i := range ops {
		v.Outcomes[i].Admitted = ops[i].Alternative() // until somebody looks
	}
	for set := nextSet(ops, 0); set >= 0; set = nextSet(ops, set) {
		if !chooseOf(set, states, ops, now, v, next) {
			v.Admitted = false
		}
	}
	alone := false // some op is charged whatever becomes of the request
	for i := range ops {
		if op := &ops[i]; !op.Alternative() {
			v.Admitted = v.Admitted && (v.Outcomes[i].Admitted || op.Shadow)
			alone = alone || op.ChargesEach() || !v.Outcomes[i].Admitted && op.Overflows()
		}
	}
	if !v.Admitted {
		for i := range v.Outcomes {
			v.Outcomes[i].Chosen = false
		}
		return changes | decideRefused(states, req, now, v, next, alone)
	}
	commit(next, now)
	changes |= keep(states, next)
	for i := range ops {
		if ops[i].Alternative() && !v.Outcomes[i].Chosen {
			unrecorded(states[firstWithKey(ops, i)], &ops[i], now, &v.Outcomes[i])
		}
	}
	return changes
}

// chooseOf chooses an alternative of a set, and reports whether one has room. Then next is what all that is chosen so
// far and the ops that are no alternatives make of states.
func chooseOf(set int, states []State, ops []Op, now Instant, v *Verdict, next []State) bool {
	for group := nextGroup(ops, set, -1); group >= 0; group = nextGroup(ops, set, group) {
		mine := func(i int) bool { return int(ops[i].Choice.Set) == set && int(ops[i].Choice.Group) == group }
		for i := range ops {
			v.Outcomes[i].Chosen = v.Outcomes[i].Chosen || mine(i)
		}
		attemptAll(states, ops, now, v, next)
		room := true
		for i := range ops {
			room = room && (!mine(i) || v.Outcomes[i].Admitted || ops[i].Shadow)
		}
		if room {
			return true
		}
		for i := range ops {
			v.Outcomes[i].Chosen = v.Outcomes[i].Chosen && !mine(i)
		}
	}
	return false
}

// attemptAll makes next what the ops that are no alternatives, and then the chosen ones by their sets, make of states.
func attemptAll(states []State, ops []Op, now Instant, v *Verdict, next []State) {
	rollback(next, states)
	for i := range ops {
		if v.takes(ops, i) {
			holdBackOp(next, ops, i, now)
		}
	}
	for set := 0; set >= 0; set = nextSet(ops, set) {
		for i := range ops {
			if int(ops[i].Choice.Set) == set && v.takes(ops, i) {
				next[firstWithKey(ops, i)].attempt(&ops[i], now, &v.Outcomes[i])
			}
		}
	}
}

// attempt steps op, so that leases can be taken back.
func (s *State) attempt(op *Op, now Instant, out *Outcome) {
	chosen := out.Chosen
	*out = Outcome{}
	if op.Limit.Is(Leased) {
		s.begin()
		*s, *out = stepConcurrency(*s, op, now, false)
	} else {
		s.step(op, now, out)
	}
	out.Chosen = chosen
}

// takes reports whether ops[i] is no alternative, or a chosen one.
func (v *Verdict) takes(ops []Op, i int) bool { return !ops[i].Alternative() || v.Outcomes[i].Chosen }

// HasAlternatives reports whether some of ops are alternatives.
func HasAlternatives(ops []Op) bool { return nextSet(ops, 0) > 0 }

// nextSet returns the lowest set of alternatives after one, or -1.
func nextSet(ops []Op, after int) (set int) {
	set = -1
	for i := range ops {
		if s := int(ops[i].Choice.Set); s > after && (set < 0 || s < set) {
			set = s
		}
	}
	return set
}

// nextGroup returns the lowest group of a set after one, or -1.
func nextGroup(ops []Op, set, after int) (group int) {
	group = -1
	for i := range ops {
		c := ops[i].Choice
		if g := int(c.Group); int(c.Set) == set && g > after && (group < 0 || g < group) {
			group = g
		}
	}
	return group
}

// chooseGranted marks the alternatives of a request that was granted before.
func chooseGranted(ops []Op, v *Verdict) {
	for set := nextSet(ops, 0); set >= 0; set = nextSet(ops, set) {
		chosen := nextGroup(ops, set, -1)
		for group := chosen; group >= 0; group = nextGroup(ops, set, group) {
			if grantedTo(ops, set, group, v) {
				chosen = group
				break
			}
		}
		for i := range ops {
			c := ops[i].Choice
			v.Outcomes[i].Chosen = v.Outcomes[i].Chosen || int(c.Set) == set && int(c.Group) == chosen
		}
	}
}

// grantedTo reports whether an acquire of an alternative has found its lease.
func grantedTo(ops []Op, set, group int, v *Verdict) bool {
	for i := range ops {
		c := ops[i].Choice
		if int(c.Set) == set && int(c.Group) == group && ops[i].Cost > 0 && v.Outcomes[i].Held {
			return true
		}
	}
	return false
}
