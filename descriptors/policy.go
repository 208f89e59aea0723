package descriptors

import (
	"slices"

	"github.com/headgate-rls/headgate/limit"
)

// A FailurePolicy says what to answer when the backend cannot.
type FailurePolicy uint8

// The failure policies. The zero policy is the service's default.
const (
	FailDefault FailurePolicy = iota
	FailAllow
	FailDeny
	FailError // fail the call, so that the proxy's own failure mode decides
	FailLocal // decide on this process's memory
)

// A Charge says when a rule's limits are charged.
type Charge uint8

// The ways to charge. The zero value is the service's default.
const (
	ChargeDefault Charge = iota
	// ChargeAllOrNothing: only if every descriptor of the request is admitted.
	ChargeAllOrNothing
	// ChargeEach: each limit that has room, whatever the others say.
	ChargeEach
)

// An Overflow says what a rule's limits take of a cost that has no room.
type Overflow uint8

// The overflows. The zero value is the service's default.
const (
	OverflowDefault Overflow = iota
	OverflowRefuse
	OverflowSaturate
	OverflowDebt
)

// OverflowOf returns what rules write for the overflow of a limit.
func OverflowOf(o limit.Overflow) Overflow { return OverflowRefuse + Overflow(o) }

// Of returns the overflow of a limit, Refuse by default.
func (o Overflow) Of() limit.Overflow {
	if o == OverflowDefault {
		return limit.Refuse
	}
	return limit.Overflow(o - OverflowRefuse)
}

var (
	failureNames  = []string{FailAllow: "allow", FailDeny: "deny", FailError: "error", FailLocal: "local"}
	overloadNames = failureNames[FailAllow:FailLocal]
	chargeNames   = []string{ChargeAllOrNothing: "all_or_nothing", ChargeEach: "each"}
	overflowNames = []string{
		OverflowRefuse: limit.Refuse.String(), OverflowSaturate: limit.Saturate.String(), OverflowDebt: limit.Debt.String(),
	}
)

// FailurePolicies returns the names that rules write for the policies: the name
// of policy p is at p-1.
func FailurePolicies() []string { return failureNames[1:] }

// OverloadPolicies is [FailurePolicies] for overload, where FailLocal is not one.
func OverloadPolicies() []string { return overloadNames }

// Charges returns the names that rules write for the charges: the name of
// charge c is at c-1.
func Charges() []string { return chargeNames[1:] }

// Overflows returns the names that rules write for the overflows: the name of
// overflow o is at o-1.
func Overflows() []string { return overflowNames[1:] }

// String returns the policy as rules write it, "default" if they do not.
func (p FailurePolicy) String() string {
	if p == FailDefault || int(p) >= len(failureNames) {
		return "default"
	}
	return failureNames[p]
}

// String returns the charge as rules write it, "default" if they do not.
func (c Charge) String() string {
	if c == ChargeDefault || int(c) >= len(chargeNames) {
		return "default"
	}
	return chargeNames[c]
}

// String returns the overflow as rules write it, "default" if they do not.
func (o Overflow) String() string {
	if o == OverflowDefault || int(o) >= len(overflowNames) {
		return "default"
	}
	return overflowNames[o]
}

// ParseOverflow returns the overflow of a name that rules may write.
func ParseOverflow(name string) (o Overflow, ok bool) {
	i := 1 + slices.Index(overflowNames[1:], name)
	return Overflow(i), i > 0
}

// ParseFailurePolicy returns the policy of a name that rules may write.
func ParseFailurePolicy(name string) (p FailurePolicy, ok bool) {
	i := 1 + slices.Index(failureNames[1:], name)
	return FailurePolicy(i), i > 0
}

// ParseOverloadPolicy returns the policy of a name that rules may write for
// overload.
func ParseOverloadPolicy(name string) (p FailurePolicy, ok bool) {
	i := 1 + slices.Index(overloadNames, name)
	return FailurePolicy(i), i > 0
}

// ParseCharge returns the charge of a name that rules may write.
func ParseCharge(name string) (c Charge, ok bool) {
	i := 1 + slices.Index(chargeNames[1:], name)
	return Charge(i), i > 0
}
