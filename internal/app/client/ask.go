package client

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/headgate-rls/headgate/internal/kit/protofields"
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

// An Answer is the answer of a service. Its fields have the names of the admin API.
type Answer struct {
	Domain     string `json:"domain"`
	Code       string `json:"code"`                 // OK or OVER_LIMIT
	Rule       string `json:"rule,omitempty"`       // that has refused
	Degraded   string `json:"degraded,omitempty"`   // the policy that decided while the store failed
	Overloaded string `json:"overloaded,omitempty"` // the policy that decided because headgate was overloaded
	// Tier, of a limit on requests in flight, refuses with Status or lets the request pass after Delay.
	Tier   string `json:"tier,omitempty"`
	Status string `json:"status,omitempty"`
	Delay  string `json:"delay,omitempty"`
	// Chosen is, by the name that rules have in choose, the last value of the descriptor that is charged.
	Chosen   map[string]string `json:"chosen,omitempty"`
	Near     string            `json:"near,omitempty"` // the first limit that is nearly used up
	NoDomain string            `json:"-"`              // why: no rules have the domain
	Limits   []DescriptorCode  `json:"limits"`
}

// A DescriptorCode is the answer about one descriptor.
type DescriptorCode struct {
	Descriptor string `json:"descriptor"`      // as [ParseDescriptor] reads it
	Code       string `json:"code"`            // OK or OVER_LIMIT
	Name       string `json:"name,omitempty"`  // of the limit
	Limit      string `json:"limit,omitempty"` // such as 600/5m; empty without a limit, and if the answer has none
	Left       int64  `json:"left"`
	Unlimited  bool   `json:"unlimited,omitempty"`
	RetryMS    *int64 `json:"retry_after_ms,omitempty"` // of a refusal
	ResetMS    *int64 `json:"reset_after_ms,omitempty"`
}

// AnswerOf returns what resp says about req.
func AnswerOf(req *rls.RateLimitRequest, resp *rls.RateLimitResponse) *Answer {
	meta := resp.GetDynamicMetadata().GetFields()
	a := &Answer{Domain: req.Domain, Code: resp.OverallCode.String(), Rule: meta["rule"].GetStringValue(),
		Degraded: meta["degraded"].GetStringValue(), Overloaded: meta["overloaded"].GetStringValue(),
		NoDomain: meta["no_domain"].GetStringValue(),
		Near:     meta["near"].GetStringValue(), Limits: []DescriptorCode{}}
	a.Tier, a.Status, a.Delay = meta["tier"].GetStringValue(), meta["deny_status"].GetStringValue(), delayOf(resp)
	for name, value := range fields(meta["choose"]) {
		if a.Chosen == nil {
			a.Chosen = map[string]string{}
		}
		a.Chosen[name] = value.GetStringValue()
	}
	for i, st := range resp.Statuses {
		d := DescriptorCode{Descriptor: descriptorText(req.Descriptors[i]), Code: st.Code.String(),
			Left: int64(st.LimitRemaining)}
		if l := st.CurrentLimit; l != nil {
			most := int64(l.RequestsPerUnit)
			if exact := fields(fields(meta["exact"])[strconv.Itoa(i)]); exact != nil { // of figures that are scaled
				most, d.Left = int64(exact["limit"].GetNumberValue()), int64(exact["remaining"].GetNumberValue())
			}
			d.Name, d.Limit = l.Name, limitText(l, most)
			wait := st.GetDurationUntilReset().AsDuration().Milliseconds()
			d.ResetMS = &wait
			if st.Code == rls.RateLimitResponse_OVER_LIMIT {
				d.RetryMS, d.ResetMS = &wait, nil
			}
		} else {
			d.Unlimited = st.LimitRemaining > 0
		}
		a.Limits = append(a.Limits, d)
	}
	return a
}

// delayOf returns how long a proxy holds the request up before it goes on; "" if it does not.
func delayOf(resp *rls.RateLimitResponse) string {
	for _, h := range resp.RequestHeadersToAdd {
		if ms, err := strconv.ParseInt(h.Value, 10, 64); err == nil && strings.EqualFold(h.Key, delayHeader) {
			return units.Format(time.Duration(ms) * time.Millisecond)
		}
	}
	return ""
}

// delayHeader has Envoy's fault filter delay a request, by so many milliseconds.
const delayHeader = "x-envoy-fault-delay-request"

// fields returns those of v, nil if it has none.
func fields(v *structpb.Value) map[string]*structpb.Value { return v.GetStructValue().GetFields() }

func descriptorText(d *common.RateLimitDescriptor) string {
	parts := make([]string, len(d.Entries))
	for i, e := range d.Entries {
		parts[i] = e.Key + "=" + strings.ReplaceAll(e.Value, ",", `\,`)
	}
	return strings.Join(parts, ",")
}

// Line renders the answer in one line.
func (a *Answer) Line() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%-10s", a.Code)
	for _, f := range []struct{ name, value string }{
		{"rule", a.Rule}, {"degraded", a.Degraded}, {"overloaded", a.Overloaded}, {"near", a.Near},
		{"tier", a.Tier}, {"status", a.Status}, {"delay", a.Delay},
	} {
		if f.value != "" {
			fmt.Fprintf(&b, " %s=%s", f.name, f.value)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(a.Chosen)) {
		fmt.Fprintf(&b, " chosen=%s:%s", name, a.Chosen[name])
	}
	for i := range a.Limits {
		l := &a.Limits[i]
		fmt.Fprintf(&b, " [%s %s]", strings.ReplaceAll(l.Descriptor, `\,`, ","), l.text(a.Degraded+a.Overloaded != ""))
	}
	return b.String()
}

func (d *DescriptorCode) text(byPolicy bool) string {
	switch {
	case d.Limit == "" && byPolicy:
		return d.Code // the answer does not say whether there is a limit
	case d.Unlimited:
		return "unlimited"
	case d.Limit == "":
		return "no limit"
	}
	wait, ms := "reset", d.ResetMS
	if d.RetryMS != nil {
		wait, ms = "retry", d.RetryMS
	}
	text := strings.TrimRight(d.Code+" "+d.Name, " ")
	return fmt.Sprintf("%s limit=%s remaining=%d %s=%ds", text, d.Limit, d.Left, wait, *ms/1000)
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

// limitText returns a limit of so many units as the other commands print it, such as 600/5m. It returns the number
// alone for limits on requests in flight, and if another service than headgate sends no window.
func limitText(l *rls.RateLimitResponse_RateLimit, most int64) string {
	unit, _ := units.Numbered(int32(l.Unit))
	window := unit.Length * time.Duration(max(l.GetUnitMultiplier().GetValue(), 1))
	if window == 0 {
		window = ownWindow(l.ProtoReflect().GetUnknown())
	}
	if window <= 0 {
		return fmt.Sprint(most)
	}
	return fmt.Sprintf("%d/%s", most, units.Format(window))
}

// fieldWindow is the number of headgate's own field of a RateLimit: its window in microseconds.
const fieldWindow = 8081

func ownWindow(unknown []byte) time.Duration {
	r := protofields.Of(unknown)
	for r.Next() {
		if r.IsNumber(fieldWindow) {
			return time.Duration(r.Number) * time.Microsecond
		}
	}
	return 0
}
