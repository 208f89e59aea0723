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
		Open: backends.OpenBy(Parse, func(ctx context.Context, conf Config, o backends.Options) (*Backend, error) {
			conf.Panics, conf.Now = o.Panics, o.Now
			return Open(ctx, conf, o.Log)
		}),
		Layers: layers.Around,
	}
	for _, s := range schemes {
		k.Schemes = append(k.Schemes, s.name)
	}
	backends.Register(k)
}
