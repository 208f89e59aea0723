package backends

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/headgate-rls/headgate/internal/kit/background"
	"github.com/headgate-rls/headgate/limit"
)

// A Kind is one kind of store, by the schemes of its URLs. A store's package registers it, so that a
// program has the stores whose packages it imports.
type Kind struct {
	Schemes []string
	Samples []string // URLs of stores that promise different things
	Caps    func(rawURL string) (Caps, error)
	Open    func(ctx context.Context, rawURL string, o Options) (Backend, error)
	// Schema returns the text that makes what the store needs, for the store of a scheme; nil if it
	// needs nothing.
	Schema func(scheme string) (string, error)
	// Layers puts around a store what one elsewhere needs; nil if the store is in this process.
	Layers func(Inside) Layered
}

// Options say how a store and its layers behave.
type Options struct {
	Timeout  time.Duration        // of calls whose context has no deadline
	Replicas int                  // how many processes share the store
	Existing bool                 // a file that does not exist is an error, and not made
	Log      *slog.Logger         // not nil
	Panics   *background.Reporter // nil: they go to the default logger
	Now      func() time.Time     // the wall clock
}

// Inside is what layers are put around.
type Inside struct {
	Options
	Caps     Caps
	Store    Backend              // as Kind.Open returned it
	Next     Backend              // the store as the innermost layer calls it
	Memory   Backend              // decides in an outage
	Instants func() limit.Instant // the clock of Memory
}

// Layered is a store with its layers.
type Layered struct {
	Backend
	Local  Backend   // decides in an outage: Inside.Memory, perhaps in a layer
	Layers []Backend // from the inside out, and then Local
	Names  []string  // of the layers, without Local
	// Tasks are what layers do in the background.
	Tasks []Task
}

// A Task is what a layer does beside its calls.
type Task struct {
	Name string
	Run  func(ctx context.Context) // until ctx ends
}

// kinds only grows, while packages are initialized.
var kinds []Kind

// Register adds a kind of store. Functions init call it. It panics if a scheme is known already.
func Register(k Kind) {
	for _, scheme := range k.Schemes {
		if _, err := KindOf(scheme + ":"); err == nil {
			panic("two stores for the scheme " + scheme)
		}
	}
	kinds = append(kinds, k)
}

// Kinds returns the stores of this program.
func Kinds() []Kind { return slices.Clone(kinds) }

// homes says which packages have which stores, for programs that do not have them.
var homes = []struct {
	store, pkg string
	schemes    []string
}{
	{"memory", "memory", []string{"memory"}},
	{"Redis", "redis", []string{"redis", "rediss", "unix", "redis+unix", "redis+sentinel", "rediss+sentinel",
		"redis+cluster", "rediss+cluster"}},
	{"SQL databases", "sqlstore", []string{"postgres", "postgresql", "mysql", "mariadb", "oracle", "sqlite"}},
	{"DynamoDB", "dynamodb", []string{"dynamodb"}},
}

// CapsBy returns the Caps of a kind whose settings parse reads from a URL.
func CapsBy[C any, P interface {
	*C
	Caps() Caps
}](parse func(rawURL string) (C, error)) func(rawURL string) (Caps, error) {
	return func(rawURL string) (Caps, error) {
		conf, err := parse(rawURL)
		if err != nil {
			return Caps{}, err
		}
		return P(&conf).Caps(), nil
	}
}

// OpenBy returns the Open of a kind whose settings parse reads from a URL.
func OpenBy[C any, B Backend](parse func(rawURL string) (C, error),
	open func(ctx context.Context, conf C, o Options) (B, error),
) func(ctx context.Context, rawURL string, o Options) (Backend, error) {
	return func(ctx context.Context, rawURL string, o Options) (Backend, error) {
		conf, err := parse(rawURL)
		if err != nil {
			return nil, err
		}
		be, err := open(ctx, conf, o)
		if err != nil {
			return nil, err // and not a nil B as a Backend
		}
		return be, nil
	}
}

// A NotLinkedError reports a URL whose store the program does not import.
type NotLinkedError string

func (e NotLinkedError) Error() string { return string(e) }

// KindOf returns the kind of the store at rawURL. It may return a [NotLinkedError].
func KindOf(rawURL string) (Kind, error) {
	scheme, _, ok := strings.Cut(rawURL, ":")
	if !ok {
		return Kind{}, fmt.Errorf("want a URL such as memory:// or redis://host:6379, not a bare word")
	}
	var known []string
	for _, k := range kinds {
		if slices.Contains(k.Schemes, scheme) {
			return k, nil
		}
		known = append(known, k.Schemes...)
	}
	for _, h := range homes {
		if slices.Contains(h.schemes, scheme) {
			return Kind{}, NotLinkedError(fmt.Sprintf("%s: needs the store of %s in the program: import _ %q", scheme,
				h.store, "github.com/headgate-rls/headgate/backends/"+h.pkg))
		}
		known = append(known, h.schemes...)
	}
	slices.Sort(known)
	return Kind{}, fmt.Errorf("no backend for scheme %q; known are %s", scheme, strings.Join(slices.Compact(known), ", "))
}
