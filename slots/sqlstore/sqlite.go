package sqlstore

import (
	"strconv"

	"github.com/headgate-rls/headgate/internal/kit/sqldb"
)

func sqliteDialect() *dialect {
	return &dialect{
		Dialect:    sqldb.SQLite,
		find:       findIn(sqldb.SQLite),
		claim:      claimRows(sqldb.SQLite, keptRows, "VALUES (", "), (", ")"),
		statements: sqliteStatements(),
	}
}

func sqliteStatements() statements {
	w := words{
		Dialect: sqldb.SQLite,
		place:   func(n int) string { return "?" + strconv.Itoa(n) },
		most:    "LIMIT #",
		plus:    func(at, ms string) string { return at + " + " + ms + " * 1000" },
		insert:  "INSERT OR IGNORE INTO #",
		renew:   renewByConflict,
		key:     "#",
	}
	s := w.statements()
	s.provision = text(`WITH RECURSIVE W (N) AS (SELECT 0 UNION ALL SELECT N + 1 FROM W WHERE N + 1 < ?4),
C (N, CT) AS (SELECT (COMPUTED_SCHED_TS - ?3) / (?2 * 1000), COUNT(*) FROM RL_EVENT_SLOT_DTL
 WHERE WNDW_SCOPE_NM = ?1 AND COMPUTED_SCHED_TS >= ?3 AND COMPUTED_SCHED_TS < ?3 + ?4 * ?2 * 1000 GROUP BY 1)
INSERT OR IGNORE INTO RL_WNDW_CT (WNDW_SCOPE_NM, WNDW_SIZE_MS, WNDW_STRT_TS, SLOT_CT, CREAT_TS, EPOCH_CT)
SELECT ?1, ?2, ?3 + W.N * ?2 * 1000, COALESCE(C.CT, 0), ` + sqldb.SQLite.Now + `,
       COALESCE((SELECT EPOCH_CT FROM RL_WNDW_EPOCH WHERE WNDW_SCOPE_NM = ?1 AND WNDW_SIZE_MS = ?2), 0)
  FROM W LEFT JOIN C ON C.N = W.N
 WHERE NOT EXISTS (SELECT 1 FROM RL_WNDW_CT T
        WHERE T.WNDW_SCOPE_NM = ?1 AND T.WNDW_SIZE_MS = ?2 AND T.WNDW_STRT_TS = ?3 + W.N * ?2 * 1000)
 ORDER BY W.N`)
	s.scheduled = text("SELECT (COMPUTED_SCHED_TS - ?3) / (?2 * 1000), COUNT(*) FROM RL_EVENT_SLOT_DTL" +
		" WHERE WNDW_SCOPE_NM = ?1 AND COMPUTED_SCHED_TS >= ?3 AND COMPUTED_SCHED_TS < ?4 GROUP BY 1 ORDER BY 1")
	s.purgeFrontiers = text("DELETE FROM RL_WNDW_FRONTIER_TRK WHERE (WNDW_SCOPE_NM, WNDW_SIZE_MS, REQ_TS, " +
		"WNDW_END_TS) IN" +
		" (SELECT WNDW_SCOPE_NM, WNDW_SIZE_MS, REQ_TS, WNDW_END_TS FROM RL_WNDW_FRONTIER_TRK WHERE REQ_TS + WNDW_SIZE_MS * " +
		"1000 <= ?1 AND CREAT_TS < ?2 LIMIT ?3)")
	s.purgeWindows = text("DELETE FROM RL_WNDW_CT WHERE (WNDW_SCOPE_NM, WNDW_SIZE_MS, WNDW_STRT_TS) IN" +
		" (SELECT WNDW_SCOPE_NM, WNDW_SIZE_MS, WNDW_STRT_TS FROM RL_WNDW_CT WHERE WNDW_STRT_TS + WNDW_SIZE_MS * 1000 <= ?1 " +
		"AND CREAT_TS < ?2 LIMIT ?3)")
	s.purgeSlots = text("DELETE FROM RL_EVENT_SLOT_DTL WHERE WNDW_SLOT_ID IN" +
		" (SELECT WNDW_SLOT_ID FROM RL_EVENT_SLOT_DTL WHERE CREAT_TS < ?1 AND COMPUTED_SCHED_TS < ?1 ORDER BY " +
		"CREAT_TS LIMIT ?2)")
	return s
}
