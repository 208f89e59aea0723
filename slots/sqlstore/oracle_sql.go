package sqlstore

import (
	"regexp"

	"github.com/headgate-rls/headgate/internal/kit/sqldb"
)

var oracleMark = regexp.MustCompile(`\{([^}]*)\}`)

// oracleSQL fills in how times cross: {3} is the placeholder :3 of an instant, {now}
// the database's clock, and {COLUMN} an instant as text.
func oracleSQL(text string) string {
	return oracleMark.ReplaceAllStringFunc(text, func(mark string) string {
		switch inner := mark[1 : len(mark)-1]; {
		case inner == "now":
			return sqldb.Oracle.Now
		case inner[0] >= '0' && inner[0] <= '9':
			return sqldb.Oracle.Bound(":" + inner)
		default:
			return sqldb.Oracle.Selected(inner)
		}
	})
}

func oracleStatement(sql string, order ...int) statement { return text(oracleSQL(sql), order...) }
