package server

import (
	"net/http"
	"strings"
	"testing"
)

// TestRefusalsAreLoggedWithTheCallersNames: over each transport and in JSON, a refusal in the log has
// the caller's x-request-id and trace, and the key only as a hash.
func TestRefusalsAreLoggedWithTheCallersNames(t *testing.T) {
	onTransports(t, func(t *testing.T, transport []string) {
		s := startServe(t, append(transport, "--log-refusals", "50")...)
		for range 6 { // of which five pass
			askWith(t, s, s.GRPC, "x-request-id", "by-grpc", "traceparent", callersParent)
		}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+s.HTTP+"/json",
			strings.NewReader(`{"domain":"example","descriptors":[{"entries":[{"key":"client","value":"alice"}]}]}`))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("X-Request-Id", "by-json")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		// printf %s 'example|client=alice' | sha256sum | cut -c1-16
		const about = `msg="request refused" domain=example rule=example/client:per-client`
		const key = "key=sha256:5e25d033abea6c4d"
		for id, trace := range map[string]string{"by-grpc": callersTrace, "by-json": `""`} {
			line := ""
			for l := range strings.Lines(s.Log.String()) {
				if strings.Contains(l, "request_id="+id) {
					line = l
				}
			}
			for _, want := range []string{"level=INFO", about, key, "trace_id=" + trace} {
				if !strings.Contains(line, want) {
					t.Errorf("%s: %s is not in %q", id, want, line)
				}
			}
			if strings.Contains(line, "alice") {
				t.Errorf("the log has the value of a request: %s", line)
			}
		}
	})
}
