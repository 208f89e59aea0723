package descriptors

import (
	"fmt"
	"slices"
	"strings"
)

const (
	maxHeaders     = 32
	maxHeaderName  = 128
	maxHeaderValue = 4096
)

// connectionHeaders belong to one connection and its framing, so a response
// from behind a proxy must not set them.
var connectionHeaders = []string{
	"connection", "content-length", "host", "keep-alive", "proxy-authenticate", "proxy-authorization",
	"proxy-connection", "te", "trailer", "transfer-encoding", "upgrade",
}

func checkHeaderName(name string) error {
	switch {
	case name == "" || len(name) > maxHeaderName:
		return fmt.Errorf("must have 1 to %d characters", maxHeaderName)
	case name[0] == ':':
		return fmt.Errorf("is a pseudo header, which the proxy sets itself")
	case slices.Contains(connectionHeaders, name):
		return fmt.Errorf("belongs to the connection and cannot be set here")
	}
	for _, c := range []byte(name) {
		if c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0 {
			continue
		}
		return fmt.Errorf("is not a header name: only letters, digits and !#$%%&'*+-.^_`|~ are allowed")
	}
	return nil
}

// A Response is what a rule adds to its refusals.
type Response struct {
	// Content is the body, at most 64 KiB.
	Content string
	// Headers are response headers, sorted by name.
	Headers []Header
}

// A Header is one response header.
type Header struct{ Name, Value string }
