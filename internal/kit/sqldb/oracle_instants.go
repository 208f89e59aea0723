package sqldb

import (
	"fmt"
	"time"
)

// oracleNow is the present.
const oracleNow = "SYS_EXTRACT_UTC(SYSTIMESTAMP)"

// oracleLayout is oracleFormat as Go writes it.
const (
	oracleFormat = "'YYYY-MM-DD HH24:MI:SS.FF6'"
	oracleLayout = "2006-01-02 15:04:05.000000"
)

// The earliest and the latest instant that oracleLayout can write.
var (
	oracleFirstUs = time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro()
	oracleLastUs  = time.Date(9999, 12, 31, 23, 59, 59, 999_999_000, time.UTC).UnixMicro()
)

// oracleText writes an instant; one beyond the calendar becomes the last of it,
// which compares with all others in the same way.
func oracleText(us int64) string {
	us = min(max(us, oracleFirstUs), oracleLastUs)
	return time.UnixMicro(us).UTC().Format(oracleLayout)
}

// oracleMicros reads what TO_CHAR wrote.
func oracleMicros(src any) (int64, error) {
	text, ok := src.(string)
	if !ok {
		return 0, fmt.Errorf("a time of type %T: want text", src)
	}
	t, err := time.Parse(oracleLayout, text)
	if err != nil {
		return 0, err
	}
	return t.UnixMicro(), nil
}
