package httpapi

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"regexp"
	"strconv"
	"strings"

	"github.com/headgate-rls/headgate/internal/kit/web"
	"github.com/headgate-rls/headgate/policies"
)

// Bounds of what clients send, in bytes.
const (
	maxBody = 16 << 10
	maxKey  = 4 << 10
)

// policyAnswer is a policy as clients see it.
type policyAnswer struct {
	ID            int64           `json:"id,omitempty"` // not there before the policy is made
	PolicyKey     string          `json:"policyKey"`
	Type          string          `json:"type"`
	Capacity      int64           `json:"capacity"`
	RefillRate    policies.Amount `json:"refillRate"`
	WindowSeconds policies.Amount `json:"windowSeconds"`
	Version       int64           `json:"version"`
	ChangedBy     string          `json:"changedBy"`
	ChangedAt     string          `json:"changedAt"`
}

func answerOf(p *policies.Policy) *policyAnswer {
	if p == nil {
		return nil
	}
	return &policyAnswer{
		ID: p.ID, PolicyKey: p.Key, Type: policies.TypeOf(p.Algorithm), Capacity: p.Capacity,
		RefillRate: p.Refill, WindowSeconds: p.Window, Version: p.Version, ChangedBy: p.ChangedBy,
		ChangedAt: policies.TimeText(p.ChangedAt),
	}
}

// policyRequest is what clients send.
type policyRequest struct {
	Key           *string         `json:"key,omitempty"` // in the path where a policy is changed
	Type          string          `json:"type"`
	Capacity      web.Integer     `json:"capacity"`
	RefillRate    json.RawMessage `json:"refillRate,omitempty"`
	WindowSeconds json.RawMessage `json:"windowSeconds,omitempty"`
}

// figures reads the numbers of a request.
func (b *policyRequest) figures() (f policies.Figures, err error) {
	if f.Algorithm, err = policies.ParseType(b.Type); err != nil {
		return f, badRequest("%v", err)
	}
	f.Capacity = int64(b.Capacity)
	if f.Refill, err = amount("refillRate", b.RefillRate); err != nil {
		return f, err
	}
	if f.Window, err = amount("windowSeconds", b.WindowSeconds); err != nil {
		return f, err
	}
	if _, err = f.Limit(); err != nil {
		return f, badRequest("%v", err)
	}
	return f, nil
}

// amount reads a number, which may have an exponent as JSON allows; nothing is 0.
func amount(field string, text json.RawMessage) (policies.Amount, error) {
	if len(text) == 0 {
		return 0, nil
	}
	plain := string(text)
	if strings.ContainsAny(plain, "eE-") {
		if number, err := strconv.ParseFloat(plain, 64); err == nil && number >= 0 {
			plain = strconv.FormatFloat(math.Abs(number), 'f', -1, 64)
		}
	}
	a, err := policies.ParseAmount(plain)
	if err != nil {
		return 0, badRequest("%s %v", field, err)
	}
	return a, nil
}

// keyOf returns the one spelling of a key that a client sent. What clients and proxies on the way
// take for a way through directories could reach another policy than was meant, and is refused.
func keyOf(given string) (string, error) {
	key, err := spelt(given)
	if err != nil {
		return "", err
	}
	for segment := range strings.SplitSeq(key, "/") {
		if segment == "." || segment == ".." {
			return "", badRequest("the key %s has %q between slashes, which paths of URLs cannot have; headgate policy knows such keys", web.Clip(key), segment)
		}
	}
	return key, nil
}

// spelt returns the one spelling of a key.
func spelt(given string) (string, error) {
	if len(given) > maxKey {
		return "", badRequest("the key has %d bytes, more than %d", len(given), maxKey)
	}
	key, err := policies.Normalize(given)
	if err != nil {
		return "", badRequest("%s", web.Clip(err.Error()))
	}
	return key, nil
}

// etag has the number of the row, too: a policy that was removed and made again has its first
// versions again.
func etag(p *policies.Policy) string { return fmt.Sprintf(`"%d-%d"`, p.ID, p.Version) }

var (
	etagForm    = regexp.MustCompile(`^(W/)?"[\x21\x23-\x7e\x80-\xff]*"$`)
	ownETagForm = regexp.MustCompile(`^"([1-9][0-9]{0,18})-([1-9][0-9]{0,18})"$`)
)

// condition adds to an edit what If-Match demands. Other conditions are refused: to pass over one
// would do what the client has ruled out.
func condition(header http.Header, edit *policies.Edit) error {
	for _, name := range []string{"If-None-Match", "If-Modified-Since", "If-Unmodified-Since"} {
		if header.Get(name) != "" {
			return badRequest("the header %s is not known here; a change may have If-Match", name)
		}
	}
	values := header.Values("If-Match")
	switch {
	case len(values) == 0:
		return nil
	case edit.If == policies.IfAbsent:
		return badRequest("the header If-Match has no meaning for a policy that is made: it must not exist")
	case len(values) == 1 && strings.TrimSpace(values[0]) == "*":
		return nil
	case len(values) > 1 || !etagForm.MatchString(strings.TrimSpace(values[0])):
		return badRequest("the header If-Match must be one ETag, as GET answers it, or *")
	}
	edit.If = policies.IfVersion
	if own := ownETagForm.FindStringSubmatch(strings.TrimSpace(values[0])); own != nil {
		edit.ID, _ = strconv.ParseInt(own[1], 10, 64) // one that is too large matches none
		edit.Version, _ = strconv.ParseInt(own[2], 10, 64)
	}
	return nil
}

// dryRun reads the parameter of that name.
func dryRun(p web.Params) (bool, error) {
	switch text, there := p["dryRun"]; {
	case !there, text == "false":
		return false, nil
	case text == "true":
		return true, nil
	default:
		return false, badRequest("dryRun is %q, want true or false", web.Clip(text))
	}
}
