package redis

import (
	"context"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/backends/layers"
)

func init() {
	k := backends.Kind{
		Samples: []string{"redis://h"},
		Caps:    backends.CapsBy(Parse),
		Open: func(ctx context.Context, rawURL string, o backends.Options) (backends.Backend, error) {
			conf, err := Parse(rawURL)
			if err != nil {
				return nil, err
			}
			conf.Panics, conf.Now = o.Panics, o.Now
			be, err := Open(ctx, conf, o.Log)
			if err != nil {
				return nil, err // and not a nil *Backend as a Backend
			}
			return be, nil
		},
		Layers: layers.Around,
	}
	for _, s := range schemes {
		k.Schemes = append(k.Schemes, s.name)
	}
	backends.Register(k)
}
