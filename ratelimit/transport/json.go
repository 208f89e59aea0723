package transport

import (
	"errors"
	"io"
	"net/http"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/headgate-rls/headgate/ratelimit"
)

// degradedHeader says on /json that a failure policy answered.
const degradedHeader = "X-Headgate-Degraded"

// maxJSON bounds a request in JSON, in which characters may be escaped.
const maxJSON = 2 * ratelimit.MaxMessageSize

// JSONHandler answers RateLimitRequests in JSON, as the reference service's
// /json does: 200 or 429 with a RateLimitResponse, 400 for a request that
// cannot be understood, and 503 when the backend failed and the rule's policy
// refuses.
func JSONHandler(s *ratelimit.Service, observe ratelimit.Observe) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		start := time.Now()
		result := serveJSON(s, w, r)
		observe(time.Since(start), result, 1)
	})
}

func serveJSON(s *ratelimit.Service, w http.ResponseWriter, r *http.Request) ratelimit.CallResult {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxJSON))
	if err != nil {
		var tooLarge *http.MaxBytesError
		if errors.As(err, &tooLarge) {
			http.Error(w, "request body is too large", http.StatusRequestEntityTooLarge)
		} else {
			http.Error(w, "could not read the request body", http.StatusBadRequest)
		}
		return ratelimit.CallInvalid
	}
	message := new(rls.RateLimitRequest)
	if err := protojson.Unmarshal(body, message); err != nil {
		http.Error(w, "body is not a RateLimitRequest in JSON: "+err.Error(), http.StatusBadRequest)
		return ratelimit.CallInvalid
	}
	encoded, err := proto.Marshal(message)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return ratelimit.CallInvalid
	}
	var req ratelimit.Request
	if err := req.Decode(encoded); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return ratelimit.CallInvalid
	}
	var resp ratelimit.Response
	readMetadata(s, &req, r.Header.Values)
	s.Decide(r.Context(), []*ratelimit.Request{&req}, []*ratelimit.Response{&resp})
	if r.Context().Err() != nil {
		s.Abandon(&resp)
	}
	writeJSON(w, &resp)
	return resp.Result()
}

func writeJSON(w http.ResponseWriter, resp *ratelimit.Response) {
	if resp.Err != nil {
		code := http.StatusBadRequest
		if resp.Result() == ratelimit.CallFailed {
			code = http.StatusServiceUnavailable
		}
		http.Error(w, resp.Err.Message, code)
		return
	}
	code := http.StatusOK
	if resp.OverLimit {
		code = http.StatusTooManyRequests
	}
	if resp.Degraded {
		w.Header().Set(degradedHeader, "true")
		if resp.OverLimit {
			code = http.StatusServiceUnavailable
		}
	}
	answer := new(rls.RateLimitResponse)
	if err := proto.Unmarshal(resp.AppendTo(nil), answer); err != nil {
		http.Error(w, "could not encode the answer: "+err.Error(), http.StatusInternalServerError)
		return
	}
	text, err := protojson.Marshal(answer)
	if err != nil {
		http.Error(w, "could not encode the answer: "+err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write(text) // the caller may be gone
}
