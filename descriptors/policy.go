package descriptors

import (
	"slices"
	"strconv"

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

// Of returns the overflow of a limit, Refuse by default.
func (o Overflow) Of() limit.Overflow {
	if o == OverflowDefault {
		return limit.Refuse
	}
	return limit.Overflow(o - OverflowRefuse)
}

var (
	failureNames  = []string{FailAllow: "allow", FailDeny: "deny", FailError: "error", FailLocal: "local"}
	overloadNames = failureNames[:FailLocal]
	chargeNames   = []string{ChargeAllOrNothing: "all_or_nothing", ChargeEach: "each"}
	overflowNames = []string{
		OverflowRefuse: limit.Refuse.String(), OverflowSaturate: limit.Saturate.String(), OverflowDebt: limit.Debt.String(),
	}
)

// nameOf returns a choice as rules write it, "default" if they do not.
func nameOf[T ~uint8](names []string, choice T) string {
	if choice == 0 || int(choice) >= len(names) {
		return "default"
	}
	return names[choice]
}

// choiceOf returns the choice of a name that rules may write.
func choiceOf[T ~uint8](names []string, name string) (choice T, ok bool) {
	i := 1 + slices.Index(names[1:], name)
	return T(i), i > 0
}

// FailurePolicies returns the names that rules write for the policies: the name
// of policy p is at p-1.
func FailurePolicies() []string { return failureNames[1:] }

// OverloadPolicies is [FailurePolicies] for overload, where FailLocal is not one.
func OverloadPolicies() []string { return overloadNames[1:] }

// Charges returns the names that rules write for the charges: the name of
// charge c is at c-1.
func Charges() []string { return chargeNames[1:] }

// Overflows returns the names that rules write for the overflows: the name of
// overflow o is at o-1.
func Overflows() []string { return overflowNames[1:] }

// String returns the policy as rules write it, "default" if they do not.
func (p FailurePolicy) String() string { return nameOf(failureNames, p) }

// String returns the charge as rules write it, "default" if they do not.
func (c Charge) String() string { return nameOf(chargeNames, c) }

// String returns the overflow as rules write it, "default" if they do not.
func (o Overflow) String() string { return nameOf(overflowNames, o) }

// ParseOverflow returns the overflow of a name that rules may write.
func ParseOverflow(name string) (Overflow, bool) { return choiceOf[Overflow](overflowNames, name) }

// ParseFailurePolicy returns the policy of a name that rules may write.
func ParseFailurePolicy(name string) (FailurePolicy, bool) {
	return choiceOf[FailurePolicy](failureNames, name)
}

// ParseOverloadPolicy returns the policy of a name that rules may write for
// overload.
func ParseOverloadPolicy(name string) (FailurePolicy, bool) {
	return choiceOf[FailurePolicy](overloadNames, name)
}

// ParseCharge returns the charge of a name that rules may write.
func ParseCharge(name string) (Charge, bool) { return choiceOf[Charge](chargeNames, name) }

// shareText writes a share as rules do.
func shareText(n int64) string {
	for name, share := range ShareNames {
		if n == share {
			return name
		}
	}
	return strconv.FormatInt(n, 10)
}

// ShareNames are what rules may write for a share in place of a number.
var ShareNames = map[string]int64{"auto": limit.AutoShare, "none": limit.NoShare}
