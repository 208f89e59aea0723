package memory

import (
	"context"

	"github.com/headgate-rls/headgate/backends"
)

func init() {
	backends.Register(backends.Kind{
		Schemes: []string{"memory"},
		Samples: []string{"memory://"},
		Caps: func(rawURL string) (backends.Caps, error) {
			_, err := Parse(rawURL)
			return Caps(), err
		},
		Open: backends.OpenBy(Parse, func(_ context.Context, conf Config, o backends.Options) (*Backend, error) {
			conf.Log, conf.Now = o.Log, o.Now
			return New(conf), nil
		}),
	})
}
