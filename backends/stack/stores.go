package stack

import (
	"context"
	"fmt"
	"sort"
	"strings"
	"time"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/backends/memory"
	"github.com/headgate-rls/headgate/backends/redis"
	"github.com/headgate-rls/headgate/backends/sqlstore"
)

// A kind is one kind of store, by the schemes of its URLs.
type kind struct {
	schemes []string
	samples []string // URLs of stores that promise different things
	caps    func(rawURL string) (backends.Caps, error)
	open    func(ctx context.Context, rawURL string, o Options) (backends.Backend, error)
	// schema returns the SQL that makes what the store needs in the database of a scheme; nil if it
	// needs nothing.
	schema func(scheme string) (string, error)
}

// kinds is the only place that knows all stores.
var kinds = []kind{
	{[]string{"memory"}, []string{"memory://"}, memoryCaps, openMemory, nil},
	{sqlstore.Schemes(), []string{"postgres://h/d", "mysql://h/d", "sqlite:d"}, sqlCaps, openSQL, sqlstore.Print},
	{[]string{"redis", "rediss", "unix", "redis+unix", "redis+sentinel", "rediss+sentinel", "redis+cluster", "rediss+cluster"}, []string{"redis://h"}, redisCaps, openRedis, nil},
}

func findKind(rawURL string) (kind, error) {
	scheme, _, ok := strings.Cut(rawURL, ":")
	if !ok {
		return kind{}, fmt.Errorf("want a URL such as memory:// or redis://host:6379, not a bare word")
	}
	var known []string
	for _, k := range kinds {
		for _, s := range k.schemes {
			if s == scheme {
				return k, nil
			}
			known = append(known, s)
		}
	}
	sort.Strings(known)
	return kind{}, fmt.Errorf("no backend for scheme %q; known are %s", scheme, strings.Join(known, ", "))
}

// Caps returns what the store at rawURL promises, without connecting. It fails
// where New would fail because of the URL.
func Caps(rawURL string) (backends.Caps, error) {
	k, err := findKind(rawURL)
	if err != nil {
		return backends.Caps{}, err
	}
	caps, err := k.caps(rawURL)
	if err == nil {
		caps.Others, err = samples()
	}
	return caps, err
}

// samples are what there is to choose from.
func samples() (all []backends.Caps, err error) {
	for _, k := range kinds {
		for _, url := range k.samples {
			caps, err := k.caps(url)
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
	return err == nil && k.schema != nil
}

// PrintSchema returns the SQL that makes the schema in the database of a scheme, such as "postgres".
func PrintSchema(scheme string) (string, error) {
	k, err := findKind(scheme + ":")
	if err != nil {
		return "", err
	}
	if k.schema == nil {
		return "", fmt.Errorf("a backend of the scheme %q has no schema", scheme)
	}
	return k.schema(scheme)
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
	conf.Log, conf.Panics = o.Log, o.Panics
	be, err := sqlstore.Open(conf)
	if err != nil {
		return nil, err // and not a nil *sqlstore.Backend as a Backend
	}
	return be, nil
}
