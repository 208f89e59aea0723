package transport

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/headgate-rls/headgate/internal/kit/web"
	"github.com/headgate-rls/headgate/internal/wire/messages"
	"github.com/headgate-rls/headgate/ratelimit"
)

// degradedHeader says on /json that a failure policy answered.
const degradedHeader = "X-Headgate-Degraded"

// maxJSON bounds a request in JSON, in which characters may be escaped.
const maxJSON = 2 * messages.MaxMessageSize

// descriptorBytes is what a descriptor keeps in memory until it is answered.
const descriptorBytes = 1 << 10

// JSONHandler answers RateLimitRequests in JSON, as the reference service's
// /json does: 200 or 429 with a RateLimitResponse, 400 for a request that
// cannot be understood, and 503 when the backend failed and the rule's policy
// refuses.
func JSONHandler(s *ratelimit.Service, observe ratelimit.Observe) http.Handler {
	demandEncoder(s)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		start := time.Now()
		result := serveJSON(s, w, r)
		observe(time.Since(start), result, 1)
	})
}

func serveJSON(s *ratelimit.Service, w http.ResponseWriter, r *http.Request) ratelimit.CallResult {
	var req ratelimit.Request
	if err := readJSON(w, r, &req); err != nil {
		status := http.StatusBadRequest
		if refused, ok := errors.AsType[*web.RequestError](err); ok {
			status = refused.Status
		}
		http.Error(w, err.Error(), status)
		return ratelimit.CallInvalid
	}
	if err := web.Keep(w, r, len(req.Descriptors)*descriptorBytes); err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return ratelimit.CallInvalid
	}
	var resp ratelimit.Response
	readHeaders(s, &req, r.Header.Values)
	decide(s, r.Context(), &req, &resp)
	if r.Context().Err() != nil {
		s.Abandon(&resp)
	}
	writeJSON(w, &resp)
	return resp.Result()
}

// decide has the service decide. The turn of the request is given back where there is something to wait for.
func decide(s *ratelimit.Service, ctx context.Context, req *ratelimit.Request, resp *ratelimit.Response) {
	defer web.YieldIf(ctx, !s.Local())()
	s.Decide(ctx, []*ratelimit.Request{req}, []*ratelimit.Response{resp})
}

// readJSON reads a request. A text of three bytes can become a message of a hundred, so large bodies
// are decoded in turns.
func readJSON(w http.ResponseWriter, r *http.Request, req *ratelimit.Request) error {
	body, err := web.ReadBody(w, r, maxJSON)
	if err != nil {
		return err
	}
	if gone := web.InTurn(r.Context(), len(body), func() { err = decodeJSON(body, req) }); gone != nil {
		return gone
	}
	return err
}

// maxObjects bounds the objects of a request in JSON: each becomes a message of many times its size. A request that is
// small enough has no more.
const maxObjects = 16 << 10

// objects counts the objects of a text in JSON.
func objects(text []byte) (n int) {
	quoted := false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"':
			quoted = !quoted
		case quoted && c == '\\':
			i++
		case !quoted && c == '{':
			n++
		}
	}
	return n
}

func decodeJSON(body []byte, req *ratelimit.Request) error {
	if n := objects(body); n > maxObjects {
		return fmt.Errorf("body has %d objects; at most %d are read", n, maxObjects)
	}
	if len(body) == 0 {
		return errors.New("body is empty; POST a RateLimitRequest in JSON, which has a domain and descriptors")
	}
	message := new(rls.RateLimitRequest)
	if err := protojson.Unmarshal(body, message); err != nil {
		return fmt.Errorf("body is not a RateLimitRequest in JSON: %w", err)
	}
	encoded, err := proto.Marshal(message)
	if err != nil {
		return err
	}
	return messages.Decode(req, encoded)
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
	if err := proto.Unmarshal(messages.Append(resp, nil), answer); err != nil {
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
