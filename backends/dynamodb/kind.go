package dynamodb

import (
	"context"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/backends/layers"
)

func init() {
	backends.Register(backends.Kind{
		Schemes: []string{Scheme},
		Samples: []string{"dynamodb://table"},
		Caps:    backends.CapsBy(Parse),
		Open: backends.OpenBy(Parse, func(_ context.Context, conf Config, o backends.Options) (*Backend, error) {
			conf.Log, conf.Panics, conf.Now = o.Log, o.Panics, o.Now
			return Open(conf)
		}),
		Schema: Print,
		Layers: layers.Around,
	})
}
