package messages

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/headgate-rls/headgate/backends/memory"
	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/descriptors/rulefile"
	"github.com/headgate-rls/headgate/limit"
	"github.com/headgate-rls/headgate/ratelimit"
)

// fullRequest uses every field that the service reads.
func fullRequest() *rls.RateLimitRequest {
	return &rls.RateLimitRequest{
		Domain:     "shop",
		HitsAddend: 7,
		Descriptors: []*common.RateLimitDescriptor{
			{
				Entries: []*common.RateLimitDescriptor_Entry{{Key: "tenant", Value: "äcme"}, {Key: "path"}},
				Limit: &common.RateLimitDescriptor_RateLimitOverride{
					RequestsPerUnit: 42, Unit: typev3.RateLimitUnit_HOUR, UnitMultiplier: wrapperspb.UInt32(3),
				},
				HitsAddend: wrapperspb.UInt64(1 << 40), IsNegativeHits: true,
			},
			{Entries: []*common.RateLimitDescriptor_Entry{{Key: "a", Value: "b"}}, HitsAddend: wrapperspb.UInt64(0)},
			{},
		},
	}
}

// fromProto is Decode by way of generated code.
func fromProto(m *rls.RateLimitRequest) ratelimit.Request {
	r := ratelimit.Request{Domain: m.Domain, Hits: m.HitsAddend}
	for _, pd := range m.Descriptors {
		d := ratelimit.Descriptor{Refund: pd.IsNegativeHits}
		for _, e := range pd.Entries {
			d.Entries = append(d.Entries, descriptors.Entry{Key: e.Key, Value: e.Value})
		}
		if l := pd.Limit; l != nil {
			d.HasOverride = true
			d.Override = ratelimit.Override{RequestsPerUnit: l.RequestsPerUnit, Unit: ratelimit.Unit(l.Unit),
				Multiplier: l.UnitMultiplier.GetValue()}
		}
		if h := pd.HitsAddend; h != nil {
			d.HasHits, d.Hits = true, h.Value
		}
		r.Descriptors = append(r.Descriptors, d)
	}
	return r
}

func sameRequest(a, b *ratelimit.Request) bool {
	if a.Domain != b.Domain || a.Hits != b.Hits || len(a.Descriptors) != len(b.Descriptors) {
		return false
	}
	for i := range a.Descriptors {
		x, y := &a.Descriptors[i], &b.Descriptors[i]
		if x.Override != y.Override || x.HasOverride != y.HasOverride || x.Hits != y.Hits ||
			x.HasHits != y.HasHits || x.Refund != y.Refund || len(x.Entries) != len(y.Entries) {
			return false
		}
		for j := range x.Entries {
			if x.Entries[j] != y.Entries[j] {
				return false
			}
		}
	}
	return true
}

func TestDecodeEveryField(t *testing.T) {
	m := fullRequest()
	encoded, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	want := fromProto(m)
	var got ratelimit.Request
	for range 3 { // the memory of an earlier request must not show
		if err := Decode(&got, encoded); err != nil {
			t.Fatal(err)
		}
		if !sameRequest(&got, &want) {
			t.Fatalf("got %+v, want %+v", got, want)
		}
	}
	if err := Decode(&got, nil); err != nil || got.Domain != "" || len(got.Descriptors) != 0 {
		t.Fatalf("empty message: %+v, %v", got, err)
	}
}

func TestDecodeRefusesMoreThanTheBounds(t *testing.T) {
	many := &rls.RateLimitRequest{Domain: "d"}
	for range MaxDescriptors + 1 {
		many.Descriptors = append(many.Descriptors, &common.RateLimitDescriptor{})
	}
	deep := &rls.RateLimitRequest{Domain: "d", Descriptors: []*common.RateLimitDescriptor{{}}}
	for range maxEntries + 1 {
		deep.Descriptors[0].Entries = append(deep.Descriptors[0].Entries, &common.RateLimitDescriptor_Entry{Key: "k"})
	}
	large := &rls.RateLimitRequest{Domain: strings.Repeat("x", MaxMessageSize)}
	for want, m := range map[string]*rls.RateLimitRequest{
		"more than 1024 descriptors": many, "more than 256 entries": deep,
		fmt.Sprintf("at most %d are allowed", MaxMessageSize): large,
	} {
		encoded, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		var r ratelimit.Request
		if err := Decode(&r, encoded); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

// FuzzDecode holds Decode to what generated code makes of the same bytes.
func FuzzDecode(f *testing.F) {
	encoded, err := proto.Marshal(fullRequest())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(encoded)
	f.Add(encoded[:len(encoded)-3])
	f.Add([]byte{0x0a, 0xff, 0xff, 0xff, 0xff, 0x0f})
	f.Add([]byte{0x0b, 0x0c})
	f.Add([]byte{0x12, 0x04, 0x1a, 0x02, 0x08, 0x05, 0x12, 0x02, 0x1a, 0x00})
	f.Add([]byte("\x12\x08\x0a\x06\x0a\x01k\x12\x01\xff"))
	f.Fuzz(func(t *testing.T, data []byte) {
		var got ratelimit.Request
		gotErr := Decode(&got, data)
		m := new(rls.RateLimitRequest)
		wantErr := proto.Unmarshal(data, m)
		if len(m.Descriptors) > MaxDescriptors {
			return
		}
		for _, d := range m.Descriptors {
			if len(d.Entries) > maxEntries {
				return
			}
		}
		if gotErr == nil && wantErr != nil && replacedText(&got) {
			return
		}
		if (gotErr == nil) != (wantErr == nil) {
			t.Fatalf("Decode: %v; proto.Unmarshal: %v", gotErr, wantErr)
		}
		if want := fromProto(m); gotErr == nil && !sameRequest(&got, &want) {
			t.Fatalf("got %+v, want %+v", got, want)
		}
	})
}

// replacedText reports whether a value may have had bytes that are not UTF-8, which generated code
// refuses.
func replacedText(r *ratelimit.Request) bool {
	for i := range r.Descriptors {
		for _, e := range r.Descriptors[i].Entries {
			if strings.Contains(e.Value, "\uFFFD") {
				return true
			}
		}
	}
	return false
}

// Clients choose values: one that is no text must not fail the call, because Envoy would then
// let the request pass.
func TestDecodeValuesThatAreNoText(t *testing.T) {
	for value, want := range map[string]string{"\xff": "\uFFFD", "a\xc3(": "a\uFFFD(", "\xed\xa0\x80": "\uFFFD",
		"ü\x00": "ü\x00"} {
		entry := appendStringField(appendStringField(nil, fieldEntryKey, "k"), fieldEntryValue, value)
		descriptor := appendBytesField(nil, fieldDescriptorEntries, entry)
		var r ratelimit.Request
		if err := Decode(&r, appendBytesField(nil, fieldRequestDescriptors, descriptor)); err != nil {
			t.Errorf("%q: %v", value, err)
		} else if got := r.Descriptors[0].Entries[0]; got != (descriptors.Entry{Key: "k", Value: want}) {
			t.Errorf("%q: %q", value, got)
		}
	}
	var r ratelimit.Request
	if err := Decode(&r, appendStringField(nil, fieldRequestDomain, "\xff")); err == nil {
		t.Error("a domain that is no text is taken")
	}
}

func TestEncodeEveryField(t *testing.T) {
	resp := answer(t, "domain: d\ndescriptors:\n"+
		"- {key: k, limits: [{name: gold, algorithm: fixed_window, limit: 10, window: 3h}]}\n"+
		"- {key: free, rate_limit: {unlimited: true}, metadata: {n: 1}}\n",
		ratelimit.Descriptor{Entries: []descriptors.Entry{{Key: "k", Value: "1"}}, Hits: 11, HasHits: true},
		ratelimit.Descriptor{Entries: []descriptors.Entry{{Key: "free"}}},
		ratelimit.Descriptor{Entries: []descriptors.Entry{{Key: "k", Value: "2"}}})
	resp.Statuses[0].Remaining, resp.Statuses[0].Reset, resp.Statuses[2].Remaining, resp.Statuses[2].Reset = 0, 61, 300, 0
	resp.Headers = []descriptors.Header{{Name: "retry-after", Value: "61"}, {Name: "x-empty"}}
	resp.RequestHeaders = []descriptors.Header{{Name: ratelimit.DelayHeader, Value: "1000"}}
	resp.Body = "slow down"
	got := new(rls.RateLimitResponse)
	if err := proto.Unmarshal(Append(resp, nil), got); err != nil {
		t.Fatal(err)
	}
	meta, err := structpb.NewStruct(map[string]any{"rule": "d/k:gold", "metadata": map[string]any{"n": 1.0}})
	if err != nil {
		t.Fatal(err)
	}
	current := &rls.RateLimitResponse_RateLimit{
		Name: "gold", RequestsPerUnit: 10, Unit: rls.RateLimitResponse_RateLimit_HOUR, UnitMultiplier: wrapperspb.UInt32(3),
	}
	want := &rls.RateLimitResponse{
		OverallCode: rls.RateLimitResponse_OVER_LIMIT,
		Statuses: []*rls.RateLimitResponse_DescriptorStatus{
			{Code: rls.RateLimitResponse_OVER_LIMIT, CurrentLimit: current,
				DurationUntilReset: &durationpb.Duration{Seconds: 61}},
			{Code: rls.RateLimitResponse_OK, LimitRemaining: 1<<32 - 1},
			{Code: rls.RateLimitResponse_OK, CurrentLimit: current, LimitRemaining: 300,
				DurationUntilReset: &durationpb.Duration{}},
		},
		ResponseHeadersToAdd: []*core.HeaderValue{{Key: "retry-after", Value: "61"}, {Key: "x-empty"}},
		RequestHeadersToAdd:  []*core.HeaderValue{{Key: ratelimit.DelayHeader, Value: "1000"}},
		RawBody:              []byte("slow down"),
		DynamicMetadata:      meta,
	}
	if !proto.Equal(got, want) {
		t.Fatalf("got  %v\nwant %v", got, want)
	}
}

// answer returns how a service answers a request for descriptors in domain d.
func answer(t *testing.T, rules string, list ...ratelimit.Descriptor) *ratelimit.Response {
	t.Helper()
	set, problems := rulefile.Load([]rulefile.Source{{Name: "test.yaml", Data: []byte(rules)}}, rulefile.Options{})
	if set == nil {
		t.Fatal(problems)
	}
	be := memory.New(memory.Config{})
	s, err := ratelimit.New(ratelimit.Config{Backend: be, Caps: memory.Caps(), Local: be, Encoder: Encoder{},
		UnitMultipliers: true, Log: slog.New(slog.DiscardHandler),
		Now: func() limit.Instant { return limit.InstantOf(time.Now()) }}, set)
	if err != nil {
		t.Fatal(err)
	}
	resp := new(ratelimit.Response)
	s.Decide(t.Context(), []*ratelimit.Request{{Domain: "d", Descriptors: list}}, []*ratelimit.Response{resp})
	return resp
}

// TestTextsAreStructs: a part of metadata with one text is encoded as generated code does it.
func TestTextsAreStructs(t *testing.T) {
	for key, value := range map[string]string{"rule": "d/k", "": "", "long": strings.Repeat("x", 200)} {
		want := Encoder{}.Struct(map[string]any{key: value})
		if got := (Encoder{}).AppendText(nil, key, value); !proto.Equal(asStruct(t, got), asStruct(t, want)) {
			t.Errorf("%q: %q is encoded as %q, generated code does %q", key, value, got, want)
		}
	}
}

func asStruct(t *testing.T, encoded []byte) *structpb.Struct {
	t.Helper()
	s := new(structpb.Struct)
	if err := proto.Unmarshal(encoded, s); err != nil {
		t.Fatal(err)
	}
	return s
}

func TestWindowsHaveUnits(t *testing.T) {
	const day = 24 * time.Hour
	for _, tc := range []struct {
		window      string
		l           limit.Spec
		multipliers bool
		unit        ratelimit.Unit
		n           uint32
	}{
		{"second", limit.Spec{Window: time.Second}, false, 1, 1},
		{"week", limit.Spec{Window: 7 * day}, false, 7, 1},
		{"month", limit.Spec{Window: 30 * day}, false, 5, 1},
		{"5 minutes, old Envoy", limit.Spec{Window: 5 * time.Minute}, false, 0, 0},
		{"5 minutes, Envoy 1.40", limit.Spec{Window: 5 * time.Minute}, true, 2, 5},
		{"36 hours", limit.Spec{Window: 36 * time.Hour}, true, 3, 36},
		{"half a second", limit.Spec{Window: time.Second / 2}, true, 0, 0},
	} {
		unit, n := unitOf(tc.l.Window, tc.multipliers)
		if unit != tc.unit || n != tc.n {
			t.Errorf("%s: got unit %d × %d, want %d × %d", tc.window, unit, n, tc.unit, tc.n)
		}
	}
}
