//go:build !rlsonly

package main

import (
	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/internal/app/envoysent"
	"github.com/headgate-rls/headgate/internal/kit/bounded"
)

// notSent returns which entries rules need and the configuration of an Envoy in a file does not send.
func notSent(set *descriptors.Set, file string) ([]descriptors.Problem, error) {
	text, err := bounded.File(file, envoysent.MaxFile)
	if err != nil {
		return nil, err
	}
	return envoysent.Missing(set, file, text), nil
}
