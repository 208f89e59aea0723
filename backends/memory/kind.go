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
		Open: func(_ context.Context, rawURL string, o backends.Options) (backends.Backend, error) {
			conf, err := Parse(rawURL)
			if err != nil {
				return nil, err
			}
			conf.Log, conf.Now = o.Log, o.Now
			return New(conf), nil
		},
	})
}
