package capture

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/internal/kit/params"
)

// A Config says what is captured.
type Config struct {
	File   string  // empty: lines go to readers of the admin API
	Sample float64 // part of the keys, by their first descriptor
	Max    int64   // bytes of the files
	// Hash are the keys of entries whose values are hashed; "*" stands for all.
	Hash []string
}

const (
	defaultMax = 1 << 30
	leastMax   = 1 << 20
)

// Parse reads FILE?sample=0.1&max=1GiB&hash=user,remote_address.
func Parse(text string) (c Config, err error) {
	file, query := text, ""
	if i := strings.LastIndexByte(text, '?'); i >= 0 {
		file, query = text[:i], text[i+1:]
	}
	if file == "" {
		return c, errors.New("a file is missing, as in /var/lib/headgate/capture.jsonl?sample=0.1&max=1GiB")
	}
	if strings.HasSuffix(file, ".gz") {
		return c, fmt.Errorf("%s: captures are not compressed", file)
	}
	c, err = ParseQuery(query)
	c.File = file
	return c, err
}

// ParseQuery reads sample=0.1&max=1GiB&hash=user,remote_address.
func ParseQuery(query string) (Config, error) {
	c := Config{Sample: 1, Max: defaultMax}
	err := params.Parse(query, []params.Row{
		{Name: "sample", Set: c.setSample},
		{Name: "max", Set: c.setMax},
		{Name: "hash", Set: func(text string) error { c.Hash = strings.Split(text, ","); return nil }},
	})
	return c, err
}

func (c *Config) setSample(text string) error {
	f, err := strconv.ParseFloat(text, 64)
	if err != nil || !(f > 0 && f <= 1) {
		return errors.New("want a part above 0 and up to 1, such as 0.1")
	}
	c.Sample = f
	return nil
}

func (c *Config) setMax(text string) error {
	factor := int64(1)
	for i, unit := range []string{"KiB", "MiB", "GiB"} {
		if number, ok := strings.CutSuffix(text, unit); ok {
			text, factor = number, 1<<(10*(i+1))
		}
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 || n > math.MaxInt64/factor || n*factor < leastMax {
		return errors.New("want a size of at least 1MiB, such as 1GiB")
	}
	c.Max = n * factor
	return nil
}

// hashes reports whether the values of entries with a key are hashed.
func (c *Config) hashes(key string) bool {
	return len(c.Hash) > 0 && (c.Hash[0] == "*" || slices.Contains(c.Hash, key))
}

// Sampled reports whether requests with a first descriptor belong to a part of all: the same ones in every process.
func Sampled(part float64, domain string, first []descriptors.Entry) bool {
	if part >= 1 {
		return true
	}
	h := uint64(14695981039346656037) // FNV-1a
	add := func(s string) {
		for i := range len(s) {
			h = (h ^ uint64(s[i])) * 1099511628211
		}
		h = (h ^ 0xff) * 1099511628211
	}
	add(domain)
	for i := range first {
		add(first[i].Key)
		add(first[i].Value)
	}
	h ^= h >> 32 // the upper bits of short texts are much alike
	h *= 0x9e3779b97f4a7c15
	return float64(h>>11) < part*(1<<53)
}
