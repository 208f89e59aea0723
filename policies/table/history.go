package table

import (
	"time"

	"github.com/headgate-rls/headgate/policies"
)

// Bounds of a store's history. It keeps the newest HistoryOfKey changes of each key, as far as they
// are among the newest HistoryOfAll changes of all keys. So an import of as many policies as there
// may be leaves an entry for each of them.
const (
	HistoryOfKey = 100
	HistoryOfAll = MaxPolicies
)

// An Entry is one change of one policy, as the history of a store has it.
type Entry struct {
	// Number grows with each change. An entry with a larger one was made later.
	Number int64
	// Generation is that of the transaction. Policies that were changed together have the same.
	Generation int64
	Key        string
	By         string    // as Policy.ChangedBy
	At         time.Time // by the clock of the database
	// Before and After are what the policy was and became; nil if there was none.
	Before, After *Revision
}

// A Revision is what a policy said at some time.
type Revision struct {
	policies.Figures
	Version int64
}
