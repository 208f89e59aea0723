package redis

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/backends/redis/script"
)

// A dialError came before there was a connection, so nothing was sent.
type dialError struct{ err error }

func (e *dialError) Error() string { return e.err.Error() }
func (e *dialError) Unwrap() error { return e.err }

// An awayError is that of a call for a node whose circuit breaker is open.
type awayError struct {
	addr    string
	refusal error
}

func (e *awayError) Error() string { return "node " + e.addr + ": " + e.refusal.Error() }
func (e *awayError) Unwrap() error { return e.refusal }

func isAway(err error) bool { return errors.As(err, new(*awayError)) }

// remedy says what may be done after an error.
type remedy uint8

const (
	none     remedy = iota
	resend          // at once, with the script's text
	tryLater        // nothing happened, and it may pass soon
)

// A replyCode is how an error reply of Redis begins.
type replyCode struct {
	code   string
	err    error
	remedy remedy
	advice string // what an operator should do
}

// What to do about passwords. Sentinels have one of their own.
const (
	serverAsks    = "the server asks for a password, and the URL names none: it stands before the @, or in password_file"
	serverRejects = "of the server, not of a Sentinel: the user and the password before the @, or in password_file"
)

const slotsApart = "a Cluster is behind this address: use redis+cluster:// and the addresses of its nodes; " +
	"layout=envoy also works behind a proxy such as Envoy's redis_proxy"

// ofSentinels is the advice in the place of another one, if the reply is that of the Sentinels.
var ofSentinels = map[string]string{
	serverAsks: "a Sentinel asks for a password of its own, and the URL names none: set sentinel_password, or " +
		"sentinel_password_file; the password before the @ is that of the servers",
	serverRejects: "of a Sentinel, not of the servers: sentinel_username and sentinel_password, or sentinel_password_file",
}

// replyCodes are the replies that mean that the command, or the script's
// first write, was turned down: nothing was recorded.
//
// OOM, READONLY, MISCONF and NOREPLICAS come from inside the script, but only
// from its first write: what they depend on does not change while it runs.
//
// Those that are ErrUnavailable only are about all keys, whatever is asked.
var replyCodes = []replyCode{
	{"NOSCRIPT", backends.ErrDeclined, resend, ""},
	{"READONLY", backends.ErrDeclined, tryLater, "it is a replica, and takes no writes"},
	{"LOADING", backends.ErrUnavailable, tryLater, ""},
	{"MASTERDOWN", backends.ErrUnavailable, tryLater, ""},
	{"MOVED", backends.ErrDeclined, tryLater, ""},
	{"ASK", backends.ErrDeclined, tryLater, ""},
	{"TRYAGAIN", backends.ErrDeclined, tryLater, ""},
	{"CLUSTERDOWN", backends.ErrDeclined, tryLater, ""},
	{"BUSY", backends.ErrUnavailable, none, ""},
	{"OOM", errFull, none, "Redis is full: raise maxmemory, or bound the keys that clients can make"},
	{"MISCONF", backends.ErrDeclined, none, "Redis cannot write to its disk, and takes no writes"},
	{"NOREPLICAS", backends.ErrDeclined, none, "Redis lacks replicas (min-replicas-to-write), and takes no writes"},
	{"NOAUTH", backends.ErrMisconfigured, none, serverAsks},
	{"ERR Protocol error: unauthenticated", backends.ErrMisconfigured, none, serverAsks}, // to more than ten words
	{"WRONGPASS", backends.ErrMisconfigured, none, serverRejects},
	{"CROSSSLOT", errStanding, none, slotsApart},
	{"ERR eval/evalsha command keys must be in same slot", errStanding, none, slotsApart}, // of proxies of clouds
	{"ERR max number of clients", backends.ErrUnavailable, tryLater, ""},
	{"ERR unknown command", backends.ErrMisconfigured, none,
		"is it a Redis of 6.0 or later, and of the kind that the URL names: one server, a Sentinel or a Cluster?"},
	{"ERR AUTH", backends.ErrMisconfigured, none, ""},
	{"ERR Client sent AUTH", backends.ErrMisconfigured, none, "it is a proxy without a password, and the URL names one"},
	{"ERR invalid password", backends.ErrMisconfigured, none, ""},
	{"ERR This instance has cluster support disabled", backends.ErrMisconfigured, none,
		"it is no node of a Cluster: use redis://"},
	{"ERR DB index is out of range", backends.ErrMisconfigured, none, ""},
}

// scriptKilled is in the reply to a script that somebody killed by SCRIPT KILL. Redis kills a script
// only before its first write.
const scriptKilled = "Script killed by user"

// mapError is the one place where the driver's errors get their meaning. sent
// says whether the command may have gone out when the context ended.
func mapError(err error, sent bool) (remedy, error) {
	applied, rem := true, none
	kind := backends.ErrUnavailable
	var dial *dialError
	var reply redis.Error
	switch {
	case isAway(err):
		return none, fmt.Errorf("redis: %w", err) // says all that is known by itself
	case errors.Is(err, errPlain):
		applied, kind = false, backends.ErrMisconfigured
	case errors.As(err, &dial):
		applied, rem = false, tryLater
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		// Deadlines of sockets are other errors: this one is the wait for a
		// connection, or between tries.
		applied = sent
	case errors.Is(err, redis.ErrPoolTimeout), errors.Is(err, redis.ErrPoolExhausted), errors.Is(err, redis.ErrClosed):
		applied = false
	case noMaster(err):
		applied, kind = false, backends.ErrMisconfigured
		err = fmt.Errorf("the Sentinels know no master of the name in the URL: %w", err)
	case errors.As(err, &reply):
		var advice string
		applied, rem, advice, kind = mapReply(reply.Error())
		if named, ok := ofSentinels[advice]; ok && ofEach(err) != nil {
			advice = named
		}
		if advice != "" {
			err = fmt.Errorf("%w (%s)", err, advice)
		}
	}
	if len(err.Error()) > maxErrorText {
		err = briefError{err}
	}
	if applied {
		return none, fmt.Errorf("redis: %w: %w", kind, err)
	}
	return rem, fmt.Errorf("redis: %w: %w: %w", kind, backends.ErrNotApplied, err)
}

// A locatedError is an error of a script that says in which part of it.
type locatedError struct {
	error
	text string
}

func (e locatedError) Error() string { return e.text }
func (e locatedError) Unwrap() error { return e.error }

// located returns err with the part of s, and the line in it, where Redis names a line.
func located(err error, s *script.Script) error {
	if text := s.Locate(err.Error()); text != err.Error() {
		return locatedError{err, text}
	}
	return err
}

// noMaster reports whether all Sentinels of the URL answer that they have no master of its name.
func noMaster(err error) bool {
	each := ofEach(err)
	return each != nil && !slices.ContainsFunc(each, func(err error) bool { return !errors.Is(err, redis.Nil) })
}

// ofEach returns the errors of all Sentinels of the URL, if err is that of having asked them.
func ofEach(err error) []error {
	var each interface{ Unwrap() []error }
	if !errors.As(err, &each) {
		return nil
	}
	return each.Unwrap()
}

// mapped returns the error that mapError makes of err, if there is one.
func mapped(err error, sent bool) error {
	if err != nil {
		_, err = mapError(err, sent)
	}
	return err
}

// maxErrorText bounds the text of an error, in bytes: servers choose their replies and the names of other servers.
const maxErrorText = 500

// A briefError cuts off the text of an error.
type briefError struct{ error }

func (e briefError) Error() string {
	return strings.ToValidUTF8(e.error.Error()[:maxErrorText], "") + "..."
}

func (e briefError) Unwrap() error { return e.error }

func mapReply(text string) (applied bool, rem remedy, advice string, kind error) {
	for _, c := range replyCodes {
		// Redis 6 reports a script's errors as "ERR Error running script
		// (...): @user_script:12: -CODE text".
		if strings.HasPrefix(text+" ", c.code+" ") || strings.Contains(text, ": -"+c.code+" ") {
			return false, c.remedy, c.advice, c.err
		}
	}
	inScript := strings.Contains(text, "user_script") || strings.Contains(text, "Error running script")
	noRight := strings.HasPrefix(text, "NOPERM") || strings.Contains(text, "-NOPERM") ||
		strings.Contains(text, "can't run this command")
	switch {
	case strings.Contains(text, scriptKilled):
		return false, none, "", backends.ErrDeclined
	case noRight && inScript: // the script may come to the command after others, or with other requests only
		return true, none, "", errStanding
	case noRight:
		return false, none, "", backends.ErrMisconfigured
	case inScript:
		return true, none, "", backends.ErrCorrupt
	}
	return true, none, "", backends.ErrDeclined
}

// errFull: Redis has no memory for what is to be written.
var errFull = fmt.Errorf("%w", backends.ErrDeclined)

// errPartly: what Redis has keys for is charged, so that who brings new keys cannot do so without being counted.
var errPartly = fmt.Errorf("redis: %w: it is full, and has counted the request only where it has keys", errFull)

// errStanding: Redis declines requests until its configuration or headgate's is changed, and maybe only some of them.
var errStanding standing

type standing struct{}

func (standing) Error() string   { return backends.ErrMisconfigured.Error() }
func (standing) Unwrap() []error { return []error{backends.ErrDeclined, backends.ErrMisconfigured} }

// unreadable reports what cannot be read under a key: see kind.
func unreadable(kind error, key string) error {
	return fmt.Errorf("redis: %w: %w: under the key %q", kind, backends.ErrNotApplied, key)
}

var errOtherWindow = fmt.Errorf("redis: %w: %w: its clock left the calendar's window whenever it was asked",
	backends.ErrUnavailable, backends.ErrNotApplied)

// errPassedOn is that of a call that the common script has passed on, until the full one has it.
var errPassedOn = fmt.Errorf("redis: %w: %w: there was no time for the full script", backends.ErrUnavailable,
	backends.ErrNotApplied)

var errBadReply = fmt.Errorf("redis: %w: the script's reply cannot be read", backends.ErrCorrupt)
