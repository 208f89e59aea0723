package sqldb

import (
	"strings"
	"testing"
)

// Java's URLs and ours.
func TestOracleAddress(t *testing.T) {
	for text, want := range map[string]oracleAddress{
		"oracle://app:s%40cret@db:1521/ORCLPDB1": {connect: "db:1521/ORCLPDB1", user: "app",
			password: "s@cret"},
		"oracle://db:1521/ORCLPDB1":              {connect: "db:1521/ORCLPDB1"},
		"oracle:thin:@localhost:1521/ORCLPDB1":   {connect: "localhost:1521/ORCLPDB1"},
		"oracle:thin:@//localhost:1521/ORCLPDB1": {connect: "localhost:1521/ORCLPDB1"},
		"oracle:thin:app/s@cret@localhost:1521/ORCLPDB1": {connect: "localhost:1521/ORCLPDB1", user: "app",
			password: "s@cret"},
		"oracle:thin:@payments_tns": {connect: "payments_tns"},
		"oracle:thin:@db:1521:ORCL": {
			connect: "(DESCRIPTION=(ADDRESS=(PROTOCOL=TCP)(HOST=db)(PORT=1521))(CONNECT_DATA=(SID=ORCL)))"},
		"oracle:thin:@(DESCRIPTION=(ADDRESS_LIST=(A=(B=c:1))))":  {connect: "(DESCRIPTION=(ADDRESS_LIST=(A=(B=c:1))))"},
		"oracle:thin:@tcps://db:2484/ORCLPDB1?ssl_server_dn=a@b": {connect: "tcps://db:2484/ORCLPDB1?ssl_server_dn=a@b"},
	} {
		got, err := oracleAddressOf(text)
		if err != nil || got != want {
			t.Errorf("%s: %+v, %v, want %+v", text, got, err, want)
		}
	}
}

func TestOracleAddressWrong(t *testing.T) {
	for _, text := range []string{
		"oracle:", "oracle:thin:", "oracle:thin:@", "oracle:thin:localhost:1521/X", "oracle:oci:@db/X", "oracle://",
		"oracle://app:hunter2@db:1521",
		"oracle://app:hunter2@db:1521/X?y=z", "oracle://app:hunter2@db:port/X",
	} {
		a, err := oracleAddressOf(text)
		if err == nil {
			t.Errorf("%s gave %+v", text, a)
		} else if strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: the error has the password: %v", text, err)
		}
	}
}

// A login must come from somewhere.
func TestOracleLogin(t *testing.T) {
	_, _, err := parse(Config{URL: "jdbc:oracle:thin:@localhost:1521/ORCLPDB1"})
	wantError(t, err, "username")
	_, _, err = parse(Config{URL: "jdbc:oracle:thin:@localhost:1521/ORCLPDB1", Username: "rate_limiter"})
	wantError(t, err, "password")
}

// Instants beyond the calendar stay in order.
func TestOracleInstants(t *testing.T) {
	for us, want := range map[int64]string{
		0:                     "1970-01-01 00:00:00.000000",
		-1:                    "1969-12-31 23:59:59.999999",
		1_748_779_200_000_001: "2025-06-01 12:00:00.000001",
		1<<63 - 1:             "9999-12-31 23:59:59.999999",
		-1 << 63:              "0001-01-01 00:00:00.000000",
	} {
		if got := Oracle.Instant(us); got != want {
			t.Errorf("%d: %v, want %s", us, got, want)
		}
	}
	for _, text := range []any{"2025-06-01", "2025-06-01 12:00", []byte("2025-06-01 12:00:00.000000"), nil, int64(3), ""} {
		if us, err := Oracle.Micros(text); err == nil {
			t.Errorf("%v was read as %d", text, us)
		}
	}
}
