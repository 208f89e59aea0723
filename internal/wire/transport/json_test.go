package transport

import (
	"strings"
	"testing"

	"github.com/headgate-rls/headgate/ratelimit"
)

// curl without -d sends a GET, or no body. The parser's words for that do not say what to send.
func TestEmptyBodyIsNamed(t *testing.T) {
	err := decodeJSON(nil, new(ratelimit.Request))
	if err == nil || !strings.HasPrefix(err.Error(), "body is empty; POST a RateLimitRequest in JSON") {
		t.Error(err)
	}
}
