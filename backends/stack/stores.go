package stack

import (
	"context"
	"fmt"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/backends/memory"
	"github.com/headgate-rls/headgate/backends/redis"
	"github.com/headgate-rls/headgate/backends/sqlstore"
)

// A Kind is one kind of store, by the schemes of its URLs.
type Kind struct {
	Schemes []string
	Samples []string // URLs of stores that promise different things
	Caps    func(rawURL string) (backends.Caps, error)
	Open    func(ctx context.Context, rawURL string, o Options) (backends.Backend, error)
	// Schema returns the text that makes what the store needs, for the store of a scheme; nil if it
	// needs nothing.
	Schema func(scheme string) (string, error)
}

// kinds are the stores that every program has, and those that were registered.
var kinds = []Kind{
	{[]string{"memory"}, []string{"memory://"}, memoryCaps, openMemory, nil},
	{sqlstore.Schemes(), []string{"postgres://h/d", "mysql://h/d", "sqlite:d"}, sqlCaps, openSQL, sqlstore.Print},
	{[]string{"redis", "rediss", "unix", "redis+unix", "redis+sentinel", "rediss+sentinel", "redis+cluster", "rediss+cluster"}, []string{"redis://h"}, redisCaps, openRedis, nil},
}

// extra says which package brings the store of a scheme that not every program has, because its client
// is large.
var extra = map[string]string{
	"dynamodb": "github.com/headgate-rls/headgate/backends/stack/withdynamodb",
}

// Register adds a kind of store. It is for the packages that bring one: a program calls theirs.
func Register(k Kind) { kinds = append(kinds, k) }

func findKind(rawURL string) (Kind, error) {
	scheme, _, ok := strings.Cut(rawURL, ":")
	if !ok {
		return Kind{}, fmt.Errorf("want a URL such as memory:// or redis://host:6379, not a bare word")
	}
	var known []string
	for _, k := range kinds {
		if slices.Contains(k.Schemes, scheme) {
			return k, nil
		}
		known = append(known, k.Schemes...)
	}
	if path, ok := extra[scheme]; ok {
		return Kind{}, fmt.Errorf("the store of scheme %q is not in this program, which has to call Register of %s first", scheme, path)
	}
	sort.Strings(known)
	return Kind{}, fmt.Errorf("no backend for scheme %q; known are %s", scheme, strings.Join(known, ", "))
}

// Caps returns what the store at rawURL promises, without connecting. It fails
// where New would fail because of the URL.
func Caps(rawURL string) (backends.Caps, error) {
	k, err := findKind(rawURL)
	if err != nil {
		return backends.Caps{}, err
	}
	caps, err := k.Caps(rawURL)
	if err == nil {
		caps.Others, err = samples()
	}
	return caps, err
}

// samples are what there is to choose from.
func samples() (all []backends.Caps, err error) {
	for _, k := range kinds {
		for _, url := range k.Samples {
			caps, err := k.Caps(url)
			if err != nil {
				return nil, err
			}
			all = append(all, caps)
		}
	}
	return all, nil
}

// HasSchema reports whether the store at rawURL has a schema, which [Stack.Migrate] brings up to date.
func HasSchema(rawURL string) bool {
	k, err := findKind(rawURL)
	return err == nil && k.Schema != nil
}

// PrintSchema returns the text that makes the schema in the store of a scheme, such as SQL for "postgres".
func PrintSchema(scheme string) (string, error) {
	k, err := findKind(scheme + ":")
	if err != nil {
		return "", err
	}
	if k.Schema == nil {
		return "", fmt.Errorf("a backend of the scheme %q has no schema", scheme)
	}
	return k.Schema(scheme)
}

func memoryCaps(rawURL string) (backends.Caps, error) {
	_, err := memory.Parse(rawURL)
	return memory.Caps(), err
}

func openMemory(_ context.Context, rawURL string, o Options) (backends.Backend, error) {
	conf, err := memory.Parse(rawURL)
	if err != nil {
		return nil, err
	}
	conf.Log, conf.Now = o.Log, time.Now
	return memory.New(conf), nil
}

func redisCaps(rawURL string) (backends.Caps, error) {
	conf, err := redis.Parse(rawURL)
	if err != nil {
		return backends.Caps{}, err
	}
	return conf.Caps(), nil
}

func openRedis(ctx context.Context, rawURL string, o Options) (backends.Backend, error) {
	conf, err := redis.Parse(rawURL)
	if err != nil {
		return nil, err
	}
	conf.Panics = o.Panics
	be, err := redis.Open(ctx, conf, o.Log)
	if err != nil {
		return nil, err // and not a nil *redis.Backend as a Backend
	}
	return be, nil
}

func sqlCaps(rawURL string) (backends.Caps, error) {
	conf, err := sqlstore.Parse(rawURL)
	if err != nil {
		return backends.Caps{}, err
	}
	return conf.Caps(), nil
}

func openSQL(_ context.Context, rawURL string, o Options) (backends.Backend, error) {
	conf, err := sqlstore.Parse(rawURL)
	if err != nil {
		return nil, err
	}
	conf.Log, conf.Panics, conf.Existing = o.Log, o.Panics, o.Existing
	be, err := sqlstore.Open(conf)
	if err != nil {
		return nil, err // and not a nil *sqlstore.Backend as a Backend
	}
	return be, nil
}
