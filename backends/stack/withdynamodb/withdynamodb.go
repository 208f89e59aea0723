// Package withdynamodb has package stack open dynamodb://TABLE. The headgate program calls its
// Register. A program that contains the library has no AWS SDK unless it does so, too, before it
// opens a limiter.
package withdynamodb

import (
	"context"
	"sync"
	"time"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/backends/dynamodb"
	"github.com/headgate-rls/headgate/backends/stack"
)

var once sync.Once

// Register adds the store to those of package stack. Only its first call does something. No store may
// be opened meanwhile.
func Register() {
	once.Do(func() {
		stack.Register(stack.Kind{
			Schemes: []string{dynamodb.Scheme}, Samples: []string{"dynamodb://table"}, Caps: caps, Open: open, Schema: dynamodb.Print,
		})
	})
}

func caps(rawURL string) (backends.Caps, error) {
	conf, err := dynamodb.Parse(rawURL)
	if err != nil {
		return backends.Caps{}, err
	}
	return conf.Caps(), nil
}

func open(_ context.Context, rawURL string, o stack.Options) (backends.Backend, error) {
	conf, err := dynamodb.Parse(rawURL)
	if err != nil {
		return nil, err
	}
	conf.Log, conf.Panics, conf.Now = o.Log, o.Panics, time.Now
	be, err := dynamodb.Open(conf)
	if err != nil {
		return nil, err // and not a nil *dynamodb.Backend as a Backend
	}
	return be, nil
}
