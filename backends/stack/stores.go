package stack

import (
	"context"
	"log/slog"
	"time"

	"github.com/headgate-rls/headgate/backends"
)

// Caps returns what the store at rawURL promises, without connecting. It fails
// where New would fail because of the URL.
func Caps(rawURL string) (backends.Caps, error) {
	k, err := backends.KindOf(rawURL)
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
	for _, k := range backends.Kinds() {
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
	k, err := backends.KindOf(rawURL)
	return err == nil && k.Schema != nil
}

// Probe asks the store at rawURL whether it can keep limits. The error says that the store cannot be opened.
func Probe(ctx context.Context, rawURL string) ([]backends.Ability, error) {
	k, err := backends.KindOf(rawURL)
	if err != nil {
		return nil, err
	}
	store, err := k.Open(ctx, rawURL, backends.Options{Existing: true, Log: slog.New(slog.DiscardHandler), Now: time.Now})
	if err != nil {
		return nil, err
	}
	defer func() { _ = store.Close() }() // nothing is kept that could be lost
	if p, ok := store.(backends.Prober); ok {
		return p.Probe(ctx), nil
	}
	return []backends.Ability{{Name: "ping", Err: store.Ping(ctx)}}, nil
}
