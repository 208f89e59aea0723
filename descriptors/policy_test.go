package descriptors

import "testing"

// Settings write policies and charges as rules do.
func TestNamesOfPolicies(t *testing.T) {
	for _, p := range []FailurePolicy{FailAllow, FailDeny, FailLocal} {
		if got, ok := ParseFailurePolicy(p.String()); got != p || !ok {
			t.Errorf("%v is read as %v, %v", p, got, ok)
		}
	}
	for _, c := range []Charge{ChargeAllOrNothing, ChargeEach} {
		if got, ok := ParseCharge(c.String()); got != c || !ok {
			t.Errorf("%v is read as %v, %v", c, got, ok)
		}
	}
	for _, name := range []string{"", "default", "Allow", "each "} {
		if p, ok := ParseFailurePolicy(name); ok || p != FailDefault {
			t.Errorf("%q is taken for the policy %v", name, p)
		}
		if c, ok := ParseCharge(name); ok || c != ChargeDefault {
			t.Errorf("%q is taken for the charge %v", name, c)
		}
	}
}
