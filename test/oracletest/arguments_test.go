package oracletest

import (
	"database/sql"
	"database/sql/driver"
	"testing"
	"time"
)

// The check of arguments must bite.
func TestOracleArgumentsWrong(t *testing.T) {
	text := func(values ...any) (args []driver.NamedValue) {
		for _, v := range values {
			args = append(args, driver.NamedValue{Value: v})
		}
		return args
	}
	for _, c := range []Call{
		{Text: "SELECT :1, :2 FROM DUAL", Args: text("a")},
		{Text: "SELECT :1 FROM DUAL", Args: text("a", "b")},
		{Text: "SELECT :2, :1 FROM DUAL", Args: text("a", "b")},
		{Text: "SELECT :1, :1 FROM DUAL", Args: text("a", "b")},
		{Text: "SELECT :1 FROM DUAL", Args: text(time.Now())},
		{Text: "SELECT :1 FROM DUAL", Args: text(true)},
		{Text: "SELECT :1 FROM DUAL", Args: text(1.5)},
		{Text: "BEGIN P(:1); END;", Args: text(sql.Out{Dest: new(sql.NullInt64)})},
	} {
		if CheckArguments(c) == nil {
			t.Errorf("no complaint about %s with %v", c.Text, c.Args)
		}
	}
}
