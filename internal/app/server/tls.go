package server

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/headgate-rls/headgate/internal/kit/background"
	"github.com/headgate-rls/headgate/internal/kit/certs"
)

// certFiles are the files of a TLS server, which are read again when they
// change.
type certFiles struct {
	flags               string // what the names of the settings begin with: grpc or admin
	cert, key, clientCA string
	protocols           []string       // by ALPN
	ifGiven             bool           // a client may have no certificate
	clients             certs.Patterns // which clients with a certificate of clientCA may connect; none: all
	log                 *slog.Logger
	refusals            background.LogLimit

	mu      sync.Mutex
	checked time.Time
	stamp   string
	config  *certConfig
	refused refusal
}

// A refusal is why files that have changed are not used; its zero value says that nothing is refused.
type refusal struct {
	problem string
	stamp   string    // of the files
	logged  time.Time // when the log said so the last time
}

// refusedAgain is how often the log says that the same files are refused.
const refusedAgain = time.Hour

// recheck is how often a new connection looks at the files at most.
const recheck = time.Second

// serverTLS returns a configuration that follows the files. Files that cannot
// be used are an error now, and later a log line while the old ones stay.
func serverTLS(f *certFiles) (*tls.Config, error) {
	f.refusals.PerSecond = 1
	config, err := f.load()
	if err != nil {
		return nil, err
	}
	f.use(config)
	f.stamp, f.checked = f.fileStamp(), time.Now()
	outer := config.Clone()
	outer.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { return f.current(), nil }
	return outer, nil
}

// current returns the configuration, renewed if the files have changed.
func (f *certFiles) current() *tls.Config {
	f.mu.Lock()
	defer f.mu.Unlock()
	if time.Since(f.checked) >= recheck {
		f.checked = time.Now()
		f.renew()
	}
	return f.config.Config
}

// renew reads the files if they have changed. What has expired does not take the place of what has not.
func (f *certFiles) renew() {
	stamp := f.fileStamp()
	if stamp == f.stamp {
		f.refused = refusal{}
		return
	}
	config, err := f.load()
	if err == nil && config.problem() != "" && f.config.problem() == "" {
		err = errors.New(config.problem())
	}
	if err != nil {
		f.refuse(err, stamp)
		return
	}
	f.use(config)
	f.stamp, f.refused = stamp, refusal{}
	f.log.Info("certificates reloaded", "cert", f.cert, "expires", config.valid[0].Ends.UTC())
}

// refuse notes why changed files are not used. The log says so once for each change, and again after an hour.
func (f *certFiles) refuse(err error, stamp string) {
	r := refusal{problem: err.Error(), stamp: stamp, logged: f.refused.logged}
	same := r.problem == f.refused.problem && r.stamp == f.refused.stamp
	if !same || time.Since(r.logged) >= refusedAgain {
		f.log.Error("changed certificates are invalid; the old ones stay in use", "error", err, "old_expires",
			f.config.valid[0].Ends.UTC())
		r.logged = time.Now()
	}
	f.refused = r
}

// refusal says why changed files are not used, and what is instead; "" if none are refused.
func (f *certFiles) refusal() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.refused.problem == "" {
		return ""
	}
	return fmt.Sprintf("the changed files are refused: %s; the old certificate, which expires on %s, stays in use",
		f.refused.problem, f.config.valid[0].Ends.UTC().Format(time.RFC3339))
}

// fileStamp is different for each state of the files.
func (f *certFiles) fileStamp() string {
	stamp := ""
	for _, name := range []string{f.cert, f.key, f.clientCA} {
		if info, err := os.Stat(name); err == nil {
			stamp += fmt.Sprint(info.ModTime().UnixNano(), info.Size(), info.Mode(), ";")
		}
	}
	return stamp
}

// A certConfig is what was read of the files at one time.
type certConfig struct {
	*tls.Config
	valid []certs.Validity // of each file
}

// problem says why some of it cannot be used at the moment; "" if all can.
func (c *certConfig) problem() string {
	for _, v := range c.valid {
		if problem := v.Problem(time.Now()); problem != "" {
			return v.File + " " + problem
		}
	}
	return ""
}

// use puts c into use.
func (f *certFiles) use(c *certConfig) {
	f.config = c
	for _, v := range c.valid {
		v.Note()
	}
}

func (f *certFiles) load() (*certConfig, error) {
	pair, valid, err := certs.LoadPair(certs.OfListener, f.cert, f.key)
	if err != nil {
		return nil, fmt.Errorf("--%[1]s-tls-cert %[2]s, --%[1]s-tls-key %[3]s: %[4]w", f.flags, f.cert, f.key, err)
	}
	config := &certConfig{&tls.Config{
		Certificates: []tls.Certificate{pair},
		MinVersion:   tls.VersionTLS12,
		NextProtos:   f.protocols,
	}, []certs.Validity{valid}}
	if f.clientCA == "" {
		return config, nil
	}
	// Only these: a certificate of a public authority must not do.
	if config.ClientCAs, valid, err = certs.Authorities(certs.OfListener, f.clientCA); err != nil {
		return nil, fmt.Errorf("--%s-client-ca: %w", f.flags, err)
	}
	config.valid = append(config.valid, valid)
	config.ClientAuth = tls.RequireAndVerifyClientCert
	if f.ifGiven {
		config.ClientAuth = tls.VerifyClientCertIfGiven
	}
	if len(f.clients) > 0 {
		config.VerifyConnection = f.verifyName
	}
	return config, nil
}

// verifyName refuses clients by the names in their certificates.
func (f *certFiles) verifyName(state tls.ConnectionState) error {
	if len(state.PeerCertificates) > 0 && f.clients.Admit(state.PeerCertificates[0]) ||
		len(state.PeerCertificates) == 0 && f.ifGiven {
		return nil
	}
	names := "no certificate"
	if len(state.PeerCertificates) > 0 {
		names = certs.Names(state.PeerCertificates[0])
	}
	if ok, skipped := f.refusals.Allow(); ok {
		f.log.Warn("client rejected: no admitted name in its certificate", "setting", "--"+f.flags+"-client-san", "names",
			names, "suppressed", skipped)
	}
	return errors.New("the client certificate has no name that --" + f.flags + "-client-san admits")
}
