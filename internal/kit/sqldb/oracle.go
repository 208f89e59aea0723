package sqldb

// Oracle is Oracle 19c and later.
//
// Instants cross as text in UTC: drivers bind times with a zone, and Oracle would
// then convert the column by the zone of the session.
var Oracle = &Dialect{
	Name:       "oracle",
	Now:        oracleNow,
	Instant:    func(us int64) any { return oracleText(us) },
	Micros:     oracleMicros,
	Bound:      func(place string) string { return "TO_TIMESTAMP(" + place + ", " + oracleFormat + ")" },
	Selected:   func(column string) string { return "TO_CHAR(" + column + ", " + oracleFormat + ")" },
	schemes:    []string{"oracle"},
	parse:      oracleParse,
	classify:   oracleClassify,
	migrations: oracleMigrations(),
}
