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
		Open: backends.OpenBy(Parse, func(_ context.Context, conf Config, o backends.Options) (*Backend, error) {
			conf.Log, conf.Panics, conf.Existing = o.Log, o.Panics, o.Existing
			return Open(conf)
		}),
		Schema: Print,
		Layers: layers.Around,
	})
}
