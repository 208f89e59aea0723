package descriptors_test

import (
	"testing"

	"github.com/headgate-rls/headgate/descriptors"
)

// Settings write policies and charges as rules do.
func TestNamesOfPolicies(t *testing.T) {
	for _, p := range []descriptors.FailurePolicy{descriptors.FailAllow, descriptors.FailDeny, descriptors.FailLocal} {
		if got, ok := descriptors.ParseFailurePolicy(p.String()); got != p || !ok {
			t.Errorf("%v is read as %v, %v", p, got, ok)
		}
	}
	for _, c := range []descriptors.Charge{descriptors.ChargeAllOrNothing, descriptors.ChargeEach} {
		if got, ok := descriptors.ParseCharge(c.String()); got != c || !ok {
			t.Errorf("%v is read as %v, %v", c, got, ok)
		}
	}
	for _, name := range []string{"", "default", "Allow", "each "} {
		if p, ok := descriptors.ParseFailurePolicy(name); ok || p != descriptors.FailDefault {
			t.Errorf("%q is taken for the policy %v", name, p)
		}
		if c, ok := descriptors.ParseCharge(name); ok || c != descriptors.ChargeDefault {
			t.Errorf("%q is taken for the charge %v", name, c)
		}
	}
}
