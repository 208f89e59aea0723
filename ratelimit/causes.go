package ratelimit

import "github.com/headgate-rls/headgate/descriptors"

// A cause is why a policy answers and not the counters.
type cause struct {
	label    string // in metrics
	message  string // in logs
	policy   func(*ruleView) descriptors.FailurePolicy
	outcomes map[descriptors.FailurePolicy]Outcome
	metadata map[descriptors.FailurePolicy][]byte // what a response's dynamic_metadata says
}

var (
	backendFailed = &cause{
		label: "backend_error", message: "backend failed, answered by policy ",
		policy: func(v *ruleView) descriptors.FailurePolicy { return v.onError },
		outcomes: map[descriptors.FailurePolicy]Outcome{
			descriptors.FailAllow: OutcomeFailedOpen, descriptors.FailDeny: OutcomeFailedClosed,
			descriptors.FailError: OutcomeFailedError,
		},
		metadata: policyMetadata("degraded"),
	}
	overloaded = &cause{
		label: "overload", message: "more requests than the backend can be asked about, answered by policy ",
		policy: func(v *ruleView) descriptors.FailurePolicy { return v.onOverload },
		outcomes: map[descriptors.FailurePolicy]Outcome{
			descriptors.FailAllow: OutcomeOverload, descriptors.FailDeny: OutcomeOverload,
			descriptors.FailError: OutcomeOverload,
		},
		metadata: policyMetadata("overloaded"),
	}
	// recalled: the store could not be asked, and had refused the same until later than now. No policy answers.
	recalled = &cause{label: "recalled", metadata: policyMetadata("recalled")}
)

func policyMetadata(key string) map[descriptors.FailurePolicy][]byte {
	m := map[descriptors.FailurePolicy][]byte{}
	for _, p := range strictness {
		m[p] = encodeMetadata(map[string]any{key: p.String()})
	}
	return m
}

// strictness orders the policies. The last one among a request's rules decides
// about the whole request. Deny comes after error, because a proxy may admit a
// request after an error.
var strictness = []descriptors.FailurePolicy{
	descriptors.FailAllow, descriptors.FailLocal, descriptors.FailError, descriptors.FailDeny,
}

func stricter(a, b descriptors.FailurePolicy) descriptors.FailurePolicy {
	for _, p := range strictness {
		if p == a {
			return b
		}
		if p == b {
			return a
		}
	}
	return a
}

// degradedLabels returns the causes of answers by policy, and the policies that
// each can be answered by.
func degradedLabels() map[string][]string {
	return map[string][]string{
		backendFailed.label: {"allow", "deny", "error", "local"},
		overloaded.label:    {"allow", "deny", "error"},
	}
}
