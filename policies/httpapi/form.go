package httpapi

import (
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"

	"github.com/headgate-rls/headgate/internal/kit/web"
	"github.com/headgate-rls/headgate/policies"
	"github.com/headgate-rls/headgate/policies/table"
)

// Bounds of what clients send, in bytes.
const (
	maxBody = 16 << 10
	maxKey  = 4 << 10
)

// keyOf returns the one spelling of a key that a client sent. What clients and proxies on the way
// take for a way through directories could reach another policy than was meant, and is refused.
func keyOf(given string) (string, error) {
	key, err := spelt(given)
	if err != nil {
		return "", err
	}
	for segment := range strings.SplitSeq(key, "/") {
		if segment == "." || segment == ".." {
			return "", web.BadRequest("the key %s has %q between slashes, which paths of URLs cannot have; "+
				"headgate policy knows such keys", web.Clip(key), segment)
		}
	}
	return key, nil
}

// spelt returns the one spelling of a key.
func spelt(given string) (string, error) {
	if len(given) > maxKey {
		return "", web.BadRequest("the key has %d bytes, more than %d", len(given), maxKey)
	}
	key, err := policies.Normalize(given)
	if err != nil {
		return "", web.BadRequest("%s", web.Clip(err.Error()))
	}
	return key, nil
}

// etag has the number of the row, too: a policy that was removed and made again has its first
// versions again.
func etag(p *table.Policy) string { return fmt.Sprintf(`"%d-%d"`, p.ID, p.Version) }

var (
	etagForm    = regexp.MustCompile(`^(W/)?"[\x21\x23-\x7e\x80-\xff]*"$`)
	ownETagForm = regexp.MustCompile(`^"([1-9][0-9]{0,18})-([1-9][0-9]{0,18})"$`)
)

// condition adds to an edit what If-Match demands. Other conditions are refused: to pass over one
// would do what the client has ruled out.
func condition(header http.Header, edit *table.Edit) error {
	for _, name := range []string{"If-None-Match", "If-Modified-Since", "If-Unmodified-Since"} {
		if header.Get(name) != "" {
			return web.BadRequest("the header %s is not known here; a change may have If-Match", name)
		}
	}
	values := header.Values("If-Match")
	switch {
	case len(values) == 0:
		return nil
	case edit.If == table.IfAbsent:
		return web.BadRequest("the header If-Match has no meaning for a policy that is made: it must not exist")
	case len(values) == 1 && strings.TrimSpace(values[0]) == "*":
		return nil
	case len(values) > 1 || !etagForm.MatchString(strings.TrimSpace(values[0])):
		return web.BadRequest("the header If-Match must be one ETag, as GET answers it, or *")
	}
	edit.If = table.IfVersion
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
		return false, web.BadRequest("dryRun is %q, want true or false", web.Clip(text))
	}
}
