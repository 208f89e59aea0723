package policies

import (
	"context"
	"errors"
	"log/slog"
)

// A Source keeps policies in force that are elsewhere.
type Source interface {
	// InForce returns the policies that are in force.
	InForce() *Set
	// Start reads the policies if their database answers until ctx ends. It fails only if the
	// database says that it cannot be used so.
	Start(ctx context.Context) error
	// Run follows the database until ctx ends.
	Run(ctx context.Context)
	// Close ends a source, after Run has returned.
	Close() error
}

// A Location says where policies are.
type Location struct {
	URL string
	// Migrate brings the schema up to date. Without it, the file of a SQLite database has to be there.
	Migrate bool
	Log     *slog.Logger
}

// opener opens the databases of policies: that of policies/sqlstore, if the program has it.
var opener func(Location) (Source, error)

// Register has open open the databases of policies. A function init calls it.
func Register(open func(Location) (Source, error)) { opener = open }

// OpenSource returns the source at a location, which does nothing until it is started.
func OpenSource(at Location) (Source, error) {
	if opener == nil {
		return nil, errors.New("a database of policies needs their store in the program: " +
			`import _ "github.com/headgate-rls/headgate/policies/sqlstore"`)
	}
	return opener(at)
}
