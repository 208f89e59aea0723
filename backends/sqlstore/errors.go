package sqlstore

import (
	"errors"
	"fmt"
	"slices"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/internal/kit/sqldb"
)

// howToMigrate is what to do about a schema that is not there.
const howToMigrate = "run headgate migrate --backend URL, or have an administrator run what headgate migrate " +
	"--print prints"

// failed returns the error that callers get for one of the database. inDoubt says whether the call may
// have taken effect all the same.
func failed(err error, inDoubt bool) error {
	if sqldb.NoSchema(err) {
		err = fmt.Errorf("%w; %s", err, howToMigrate)
	}
	kind := backends.ErrUnavailable
	if e, ok := errors.AsType[*sqldb.Error](err); ok && e.Declined {
		kind = backends.ErrDeclined
	}
	return backends.Failed(kind, err, inDoubt)
}

// standing adds [backends.ErrMisconfigured] to an error of Ping or Migrate that retrying does not remove.
func standing(err error) error {
	if e, ok := errors.AsType[*sqldb.Error](err); ok && e.Kind == sqldb.Failed {
		return fmt.Errorf("%w: %w", backends.ErrMisconfigured, err)
	}
	return err
}

// passes reports whether the same transaction may succeed if it is tried again at once.
func passes(err error) bool {
	return slices.Contains([]sqldb.Kind{sqldb.Passing, sqldb.Duplicate, sqldb.Held}, sqldb.KindOf(err))
}
