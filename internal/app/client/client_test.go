package client

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

func TestParseDescriptor(t *testing.T) {
	d, err := ParseDescriptor(`a=1,b=x\,y=z,c=`)
	if err != nil {
		t.Fatal(err)
	}
	got := ""
	for _, e := range d.Entries {
		got += e.Key + "|" + e.Value + ";"
	}
	if got != "a|1;b|x,y=z;c|;" {
		t.Errorf("got %q", got)
	}
	for _, bad := range []string{"", "a", "=b", "a=1,", "a=1,=2"} {
		if _, err := ParseDescriptor(bad); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}

func TestLocalAddressIsThatOfTheEnvironment(t *testing.T) {
	for setting, want := range map[string]string{
		"":                   "127.0.0.1:8081",
		":9000":              "127.0.0.1:9000",
		"0.0.0.0:9000":       "127.0.0.1:9000",
		"[::]:9000":          "127.0.0.1:9000",
		"10.0.0.1:9000":      "10.0.0.1:9000",
		"unix:/run/rls.sock": "unix:/run/rls.sock",
		"unix:@rls":          "unix:@rls",
	} {
		t.Setenv("HEADGATE_GRPC", setting)
		if got := LocalAddress("grpc", "127.0.0.1:8081"); got != want {
			t.Errorf("%q: %s, want %s", setting, got, want)
		}
	}
	t.Setenv("HEADGATE_HTTP", "unix:/run/http.sock")
	if got := SlotsURL(); got != "http://127.0.0.1:8080" {
		t.Errorf("slots: %s", got)
	}
}

// A change that is sent elsewhere would become a question, and the token would be for anybody there.
func TestNobodyElseIsAsked(t *testing.T) {
	t.Setenv("HEADGATE_ADMIN_TOKEN", "a-token-of-at-least-16-characters")
	asked := 0
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked++ }))
	defer other.Close()
	server := httptest.NewServer(http.RedirectHandler(other.URL+"/x", http.StatusMovedPermanently))
	defer server.Close()
	a := API{Options: Options{Addr: server.URL, Timeout: 10 * time.Second}}
	for _, method := range []string{http.MethodGet, http.MethodPut, http.MethodDelete} {
		err := a.Call(t.Context(), method, "/admin/policies/x", nil, nil)
		if err == nil || !strings.Contains(err.Error(), other.URL) || !strings.Contains(err.Error(), "--addr") || asked > 0 {
			t.Errorf("%s: %v; another server was asked %d times", method, err, asked)
		}
	}
}

// TestLimitsAreWrittenAsElsewhere: 600/5m, with the window that a unit, a multiplier or headgate's own field says.
func TestLimitsAreWrittenAsElsewhere(t *testing.T) {
	own := protowire.AppendVarint(protowire.AppendTag(nil, fieldWindow, protowire.VarintType), 300_000_000)
	other := protowire.AppendString(protowire.AppendTag(nil, 9, protowire.BytesType), "x")
	for want, l := range map[string]*rls.RateLimitResponse_RateLimit{
		"7":    {RequestsPerUnit: 7},
		"7/1m": {RequestsPerUnit: 7, Unit: rls.RateLimitResponse_RateLimit_MINUTE},
		"7/3h": {RequestsPerUnit: 7, Unit: rls.RateLimitResponse_RateLimit_HOUR, UnitMultiplier: wrapperspb.UInt32(3)},
		"7/5m": {RequestsPerUnit: 7},
	} {
		if want == "7/5m" {
			l.ProtoReflect().SetUnknown(append(other, own...))
		}
		if got := limitText(l, int64(l.RequestsPerUnit)); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// TestAnswersSayWhoIsChosenAndWhatIsNear: both are in the metadata alone.
func TestAnswersSayWhoIsChosenAndWhatIsNear(t *testing.T) {
	meta, err := structpb.NewStruct(map[string]any{"choose": map[string]any{"zone": "eu", "model": "azure"},
		"near": "llm/user:day"})
	if err != nil {
		t.Fatal(err)
	}
	a := AnswerOf(&rls.RateLimitRequest{}, &rls.RateLimitResponse{OverallCode: rls.RateLimitResponse_OK,
		DynamicMetadata: meta})
	if got, want := a.Line(), "OK         near=llm/user:day chosen=model:azure chosen=zone:eu"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// TestFiguresAboveTheWire: where an answer has the exact figures beside the scaled ones, they are what is shown.
func TestFiguresAboveTheWire(t *testing.T) {
	meta, err := structpb.NewStruct(map[string]any{"exact": map[string]any{"1": map[string]any{"limit": 1e10,
		"remaining": 4e9}}})
	if err != nil {
		t.Fatal(err)
	}
	d := &common.RateLimitDescriptor{Entries: []*common.RateLimitDescriptor_Entry{{Key: "k", Value: "v"}}}
	day := rls.RateLimitResponse_RateLimit_DAY
	a := AnswerOf(&rls.RateLimitRequest{Descriptors: []*common.RateLimitDescriptor{d, d}}, &rls.RateLimitResponse{
		OverallCode: rls.RateLimitResponse_OK, DynamicMetadata: meta,
		Statuses: []*rls.RateLimitResponse_DescriptorStatus{
			{Code: rls.RateLimitResponse_OK, LimitRemaining: 3,
				CurrentLimit: &rls.RateLimitResponse_RateLimit{RequestsPerUnit: 5, Unit: day}},
			{Code: rls.RateLimitResponse_OK, LimitRemaining: 1717986918,
				CurrentLimit: &rls.RateLimitResponse_RateLimit{RequestsPerUnit: 1<<32 - 1, Unit: day}},
		}})
	want := "OK         [k=v OK limit=5/24h remaining=3 reset=0s] " +
		"[k=v OK limit=10000000000/24h remaining=4000000000 reset=0s]"
	if got := a.Line(); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
