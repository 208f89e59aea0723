package sqlstore

import (
	"path/filepath"
	"testing"

	"github.com/headgate-rls/headgate/policies"
	"github.com/headgate-rls/headgate/policies/table"
	"github.com/headgate-rls/headgate/test/testenv"
)

// SQLite keeps any value in any column. A row that somebody wrote by hand with a capacity that is no whole number is
// ignored, as other rows are that are no policy, and the others are followed.
func TestARowOfSQLiteByHandHidesNoOther(t *testing.T) {
	testenv.UseSQLite(t)
	url := "sqlite:" + filepath.Join(t.TempDir(), "policies.db")
	s := open(t, url)
	migrateTo(t, s, url, 0)
	set := new(policies.Set)
	f := table.NewFollower(s, set, quiet)
	for _, text := range []string{
		"INSERT INTO HEADGATE_POLICY (POLICY_KEY, TYPE, CAPACITY, WINDOW_SECONDS, GENERATION) " +
			"VALUES ('a', 'FIXED_WINDOW', 5, 60, 1)",
		"INSERT INTO HEADGATE_POLICY (POLICY_KEY, TYPE, CAPACITY, WINDOW_SECONDS, GENERATION) " +
			"VALUES ('b', 'FIXED_WINDOW', 1.5, 60, 1)",
		"UPDATE HEADGATE_POLICY_STATE SET GENERATION = 1",
	} {
		check(t, s.change(soon(t), s.db.Write, text))
	}
	if err := f.Poll(soon(t)); err != nil {
		t.Errorf("poll: %v", err)
	}
	if n := set.Snapshot().Len(); n != 1 {
		t.Errorf("%d policies", n)
	}
	if list, err := s.List(soon(t), "", "", 10); err != nil {
		t.Errorf("list: %v, %v", list, err)
	}
}
