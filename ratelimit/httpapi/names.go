package httpapi

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"unicode/utf8"

	"github.com/headgate-rls/headgate/descriptors"
)

// isHashed reports whether a text is what [descriptors.HashedName] returns.
func isHashed(text string) bool {
	return strings.HasPrefix(text, descriptors.HashPrefix) && !strings.Contains(text, "|")
}

// parseName takes apart what [descriptors.Name] has made, or a person has written like it.
func parseName(name string) (domain string, entries []descriptors.Entry, err error) {
	for i, part := range strings.Split(name, "|") {
		key, value, _ := strings.Cut(part, "=")
		if i == 0 {
			key, value = part, ""
		}
		var e descriptors.Entry
		if e.Key, err = unescaped(key); err == nil {
			e.Value, err = unescaped(value)
		}
		switch {
		case err != nil:
			return "", nil, err
		case e.Key == "":
			return "", nil, errors.New("the key has an empty part; want DOMAIN|ENTRY=VALUE")
		case i == 0:
			domain = e.Key
		default:
			entries = append(entries, e)
		}
	}
	if len(entries) == 0 {
		return "", nil, errors.New("the key has no entry; want DOMAIN|ENTRY=VALUE")
	}
	return domain, entries, nil
}

func unescaped(text string) (string, error) {
	s, err := url.PathUnescape(text)
	var escape url.EscapeError
	switch {
	case errors.As(err, &escape):
		return "", fmt.Errorf("the key has %.9q, which is no escape: write %%25 for a percent sign", string(escape))
	case !utf8.ValidString(s):
		return "", errors.New("the key is not valid UTF-8 when it is unescaped")
	}
	return s, err
}
