package spell

import (
	"fmt"
	"strings"
)

// Pairs reads KEY=VALUE pairs with commas between them; a comma in a value is written \,
func Pairs(text string) (pairs [][2]string, err error) {
	const comma = "\x00"
	for part := range strings.SplitSeq(strings.ReplaceAll(text, `\,`, comma), ",") {
		key, value, ok := strings.Cut(strings.ReplaceAll(part, comma, ","), "=")
		if !ok || key == "" {
			return nil, fmt.Errorf("%q: want KEY=VALUE[,KEY=VALUE…]", Short(text))
		}
		pairs = append(pairs, [2]string{key, value})
	}
	return pairs, nil
}
