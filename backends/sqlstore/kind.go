package sqlstore

import (
	"context"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/backends/layers"
	"github.com/headgate-rls/headgate/internal/kit/sqldb"
)

func init() {
	backends.Register(backends.Kind{
		Schemes: sqldb.Schemes(),
		Samples: []string{"postgres://h/d", "mysql://h/d", "sqlite:d"},
		Caps:    backends.CapsBy(Parse),
		Open: func(_ context.Context, rawURL string, o backends.Options) (backends.Backend, error) {
			conf, err := Parse(rawURL)
			if err != nil {
				return nil, err
			}
			conf.Log, conf.Panics, conf.Existing = o.Log, o.Panics, o.Existing
			be, err := Open(conf)
			if err != nil {
				return nil, err // and not a nil *Backend as a Backend
			}
			return be, nil
		},
		Schema: Print,
		Layers: layers.Around,
	})
}
