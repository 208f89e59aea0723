package policies

import (
	"fmt"
	"strings"
)

// Patterns say of which keys an operator wants to know more: keys, and beginnings of keys. A nil
// Patterns matches none.
type Patterns struct {
	keys   map[string]bool
	begins []string
}

// maxPatterns bounds Patterns: each beginning is compared with keys while requests wait.
const maxPatterns = 100

// ParsePatterns reads keys as [Normalize] does, and beginnings of keys, which end in *. A * alone
// stands for all keys. It returns nil for none.
func ParsePatterns(list []string) (*Patterns, error) {
	if len(list) > maxPatterns {
		return nil, fmt.Errorf("%d keys are more than %d; a * at the end stands for all that begin alike",
			len(list), maxPatterns)
	}
	if len(list) == 0 {
		return nil, nil
	}
	p := &Patterns{keys: map[string]bool{}}
	for _, text := range list {
		begin, many := strings.CutSuffix(text, "*")
		if strings.Contains(begin, "*") {
			return nil, fmt.Errorf("%.300q: a * may only be at the end; %%2A is one in a key", text)
		}
		if many && begin == "" {
			p.begins = append(p.begins, "")
			continue
		}
		key, err := Normalize(begin)
		switch {
		case err != nil:
			return nil, fmt.Errorf("%.300q: %w", text, err)
		case many && len(key) > maxStart-3:
			return nil, fmt.Errorf("%.300q: has more than %d bytes before the *", text, maxStart-3)
		case many:
			p.begins = append(p.begins, key)
		default:
			p.keys[key] = true
		}
	}
	return p, nil
}

// Match reports whether the patterns name a key.
func (p *Patterns) Match(key []byte) bool {
	if p == nil {
		return false
	}
	if p.keys[string(key)] {
		return true
	}
	for _, begin := range p.begins {
		if len(key) >= len(begin) && string(key[:len(begin)]) == begin {
			return true
		}
	}
	return false
}
