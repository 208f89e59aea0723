package client

import (
	"errors"
	"fmt"
	"strings"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/headgate-rls/headgate/internal/kit/spell"
	"github.com/headgate-rls/headgate/internal/kit/units"
)

// ParseDescriptor reads "key=value,key=value"; "\," is a comma in a value.
func ParseDescriptor(arg string) (*common.RateLimitDescriptor, error) {
	pairs, err := spell.Pairs(arg)
	if err != nil {
		return nil, fmt.Errorf("descriptor %w", err)
	}
	d := new(common.RateLimitDescriptor)
	for _, p := range pairs {
		d.Entries = append(d.Entries, &common.RateLimitDescriptor_Entry{Key: p[0], Value: p[1]})
	}
	return d, nil
}

// AnswerLine renders an answer in one line.
func AnswerLine(req *rls.RateLimitRequest, resp *rls.RateLimitResponse) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%-10s", resp.OverallCode)
	meta := resp.GetDynamicMetadata().GetFields()
	if rule := meta["rule"].GetStringValue(); rule != "" {
		fmt.Fprintf(&b, " rule=%s", rule)
	}
	byPolicy := false
	for _, cause := range []string{"degraded", "overloaded"} {
		if policy := meta[cause].GetStringValue(); policy != "" {
			byPolicy = true
			fmt.Fprintf(&b, " %s=%s", cause, policy)
		}
	}
	for i, st := range resp.Statuses {
		b.WriteString(" [")
		for j, e := range req.Descriptors[i].Entries {
			if j > 0 {
				b.WriteByte(',')
			}
			fmt.Fprintf(&b, "%s=%s", e.Key, e.Value)
		}
		if byPolicy && st.CurrentLimit == nil {
			fmt.Fprintf(&b, " %s", st.Code) // whether there is a limit is not in the answer
		} else {
			b.WriteString(statusText(st))
		}
		b.WriteByte(']')
	}
	return b.String()
}

// Counted returns an error unless counters have decided an answer.
func Counted(resp *rls.RateLimitResponse) error {
	meta := resp.GetDynamicMetadata().GetFields()
	for _, cause := range []string{"degraded", "overloaded", "recalled"} {
		if meta[cause] != nil {
			return fmt.Errorf("no counter has decided: %s. Does the store answer?", cause)
		}
	}
	for _, st := range resp.Statuses {
		if st.CurrentLimit != nil {
			return nil
		}
	}
	return errors.New("no counter has decided: no rule limits what was asked")
}

func statusText(st *rls.RateLimitResponse_DescriptorStatus) string {
	l := st.CurrentLimit
	switch {
	case l == nil && st.LimitRemaining > 0:
		return " unlimited"
	case l == nil:
		return " no limit"
	}
	name := ""
	if l.Name != "" {
		name = " " + l.Name
	}
	wait := "reset"
	if st.Code == rls.RateLimitResponse_OVER_LIMIT {
		wait = "retry"
	}
	return fmt.Sprintf(" %s%s limit=%s remaining=%d %s=%ds", st.Code, name, limitText(l), st.LimitRemaining, wait,
		st.GetDurationUntilReset().GetSeconds())
}

// limitText is a limit as the other commands have it, such as 600/5m. Only a number is known of limits on requests in
// flight, and of some limits of other services than headgate.
func limitText(l *rls.RateLimitResponse_RateLimit) string {
	unit, _ := units.Numbered(int32(l.Unit))
	window := unit.Length * time.Duration(max(l.GetUnitMultiplier().GetValue(), 1))
	if window == 0 {
		window = ownWindow(l.ProtoReflect().GetUnknown())
	}
	if window <= 0 {
		return fmt.Sprint(l.RequestsPerUnit)
	}
	return fmt.Sprintf("%d/%s", l.RequestsPerUnit, units.Format(window))
}

// fieldWindow is the number of headgate's own field of a RateLimit: its window in microseconds.
const fieldWindow = 8081

func ownWindow(unknown []byte) time.Duration {
	for len(unknown) > 0 {
		number, kind, n := protowire.ConsumeField(unknown)
		if n < 0 {
			return 0
		}
		if number == fieldWindow && kind == protowire.VarintType {
			_, _, tag := protowire.ConsumeTag(unknown)
			us, _ := protowire.ConsumeVarint(unknown[tag:])
			return time.Duration(us) * time.Microsecond
		}
		unknown = unknown[n:]
	}
	return 0
}
