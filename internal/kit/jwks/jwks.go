package jwks

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/headgate-rls/headgate/internal/kit/background"
)

// Config says which tokens are accepted. All fields but Now must be set.
type Config struct {
	// Source is the file that has the keys, or a URL: https, or http of this host. New does not check that.
	Source string
	// Issuer and Audience are what the claims iss and aud must have.
	Issuer, Audience string
	// Leeway is how much clocks may differ.
	Leeway time.Duration
	Log    *slog.Logger
	// Now is the clock; nil: time.Now.
	Now func() time.Time
}

// ErrUnavailable is why no token can be verified: the keys could not be read yet.
var ErrUnavailable = errors.New("the keys that sign JWTs could not be read yet")

// How often the keys are read, and for how long that may take. A token with a key that is not
// known has them read again, as they may have changed.
const (
	fileEvery = 5 * time.Second
	urlEvery  = 5 * time.Minute
	retryIn   = 10 * time.Second // after a failure, and between readings on demand
	readTime  = 5 * time.Second
)

// A Verifier verifies tokens. Its methods may be called concurrently.
type Verifier struct {
	conf   Config
	client *http.Client // nil: Source is a file
	keys   atomic.Pointer[[]jose.JSONWebKey]

	turn  chan struct{} // the caller whose element is in it reads the keys
	tried time.Time     // when they were read last; belongs to who has the turn
	bad   string        // why that failed; it is logged once
}

// New returns a verifier. A file must have keys; a URL need not answer yet. The caller runs
// [Verifier.Run].
func New(c Config) (*Verifier, error) {
	if c.Now == nil {
		c.Now = time.Now
	}
	v := &Verifier{conf: c, turn: make(chan struct{}, 1)}
	if !strings.Contains(c.Source, "://") {
		keys, err := v.read(context.Background())
		if err != nil {
			return nil, err
		}
		v.keys.Store(&keys)
		return v, nil
	}
	v.client = &http.Client{
		// No connection is kept for the next time, which is minutes away.
		Transport: &http.Transport{
			Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true,
			TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12}, MaxResponseHeaderBytes: 64 << 10,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return v, nil
}

// Run reads the keys again and again, until ctx ends.
func (v *Verifier) Run(ctx context.Context) {
	every := fileEvery
	if v.client != nil {
		every = urlEvery
	}
	for wait := time.Duration(0); background.Sleep(ctx, wait) == nil; {
		wait = every
		if v.refresh(ctx, 0) != nil {
			wait = min(every, retryIn)
		}
	}
}

// refresh reads the keys, unless that was done a moment ago. If it fails, those that were read
// before stay.
func (v *Verifier) refresh(ctx context.Context, unlessWithin time.Duration) error {
	select {
	case v.turn <- struct{}{}:
		defer func() { <-v.turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if !v.tried.IsZero() && v.conf.Now().Sub(v.tried) < unlessWithin {
		return nil
	}
	keys, err := v.read(ctx)
	v.tried = v.conf.Now()
	if err != nil {
		if ctx.Err() == nil && err.Error() != v.bad {
			v.bad = err.Error()
			v.conf.Log.Error("could not read the keys of JWTs; those that were read last stay", "error", err)
		}
		return err
	}
	if v.bad != "" {
		v.conf.Log.Info("the keys of JWTs can be read again")
	}
	v.bad = ""
	v.keys.Store(&keys)
	return nil
}

// read returns the keys of the source that can verify a signature.
func (v *Verifier) read(ctx context.Context) ([]jose.JSONWebKey, error) {
	if v.client == nil {
		f, err := os.Open(v.conf.Source)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		return parse(v.conf.Source, f)
	}
	ctx, cancel := context.WithTimeout(ctx, readTime)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, v.conf.Source, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/jwk-set+json, application/json")
	resp, err := v.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answers %s", v.conf.Source, resp.Status)
	}
	return parse(v.conf.Source, resp.Body)
}
