package sqlstore

// What is selected of slots and configs, with times as text.
const (
	oracleSlotColumns   = "WNDW_SLOT_ID, EVENT_ID, WNDW_SCOPE_NM, WNDW_SIZE_MS, {REQ_TS}, {WNDW_STRT_TS}, {COMPUTED_SCHED_TS}, RL_WNDW_CONFIG_ID, {CREAT_TS}"
	oracleConfigColumns = "RL_WNDW_CONFIG_ID, WNDW_CONFIG_NM, WNDW_MAX_EVENT_CT, WNDW_SIZE_ISO_DUR_TX, CONFIG_OPT_TX, {CONFIG_EFF_STRT_DT}, ACT_IN, {CREAT_TS}"
)

// oracleWindow finds a window by its first three placeholders.
const oracleWindow = " FROM RL_WNDW_CT WHERE WNDW_SCOPE_NM = :1 AND WNDW_SIZE_MS = :2 AND WNDW_STRT_TS = {3}"

// oracleStatements are the texts. The hint IGNORE_ROW_ON_DUPKEY_INDEX passes over
// rows that another session inserted since NOT EXISTS was asked. An empty text is
// NULL in Oracle, hence NVL where one may come. Placeholders are bound by where they
// stand: their numbers must count up.
func oracleStatements() statements {
	return statements{
		peek: oracleStatement("SELECT SLOT_CT" + oracleWindow),
		scout: oracleStatement("SELECT {MIN(WNDW_STRT_TS)} FROM RL_WNDW_CT" +
			" WHERE WNDW_SCOPE_NM = :1 AND WNDW_SIZE_MS = :2 AND WNDW_STRT_TS >= {3} AND WNDW_STRT_TS < {4} AND SLOT_CT < :5"),
		frontier: oracleStatement("SELECT {MAX(WNDW_END_TS)} FROM RL_WNDW_FRONTIER_TRK" +
			" WHERE WNDW_SCOPE_NM = :1 AND WNDW_SIZE_MS = :2 AND REQ_TS = {3}"),

		provision: oracleStatement(oracleProvision),
		addFrontier: oracleStatement("INSERT /*+ IGNORE_ROW_ON_DUPKEY_INDEX(RL_WNDW_FRONTIER_TRK, RL_WNDW_FRONTIER_TRK_PK) */" +
			" INTO RL_WNDW_FRONTIER_TRK (WNDW_SCOPE_NM, WNDW_SIZE_MS, REQ_TS, WNDW_END_TS, CREAT_TS)" +
			" SELECT N.SCOPE_NM, N.SIZE_MS, N.REQ_TS, N.END_TS, {now}" +
			" FROM (SELECT :1 SCOPE_NM, :2 SIZE_MS, {3} REQ_TS, {4} END_TS FROM DUAL) N" +
			" WHERE NOT EXISTS (SELECT 1 FROM RL_WNDW_FRONTIER_TRK F WHERE F.WNDW_SCOPE_NM = N.SCOPE_NM" +
			" AND F.WNDW_SIZE_MS = N.SIZE_MS AND F.REQ_TS = N.REQ_TS AND F.WNDW_END_TS = N.END_TS)"),

		lock:     oracleStatement("SELECT SLOT_CT" + oracleWindow + " AND SLOT_CT < :4 FOR UPDATE SKIP LOCKED"),
		lockWait: oracleStatement("SELECT SLOT_CT" + oracleWindow + " FOR UPDATE"),
		count: oracleStatement("SELECT COUNT(*) FROM RL_EVENT_SLOT_DTL" +
			" WHERE WNDW_SCOPE_NM = :1 AND COMPUTED_SCHED_TS >= {2} AND COMPUTED_SCHED_TS < {3}"),
		setCount: oracleStatement("UPDATE RL_WNDW_CT SET SLOT_CT = :1 WHERE WNDW_SCOPE_NM = :2 AND WNDW_SIZE_MS = :3 AND WNDW_STRT_TS = {4}"),

		activeConfig: oracleStatement("SELECT " + oracleConfigColumns + " FROM RL_EVENT_WNDW_CONFIG WHERE WNDW_CONFIG_NM = :1 AND ACT_IN = 1"),
		activeConfigs: oracleStatement("SELECT " + oracleConfigColumns + " FROM RL_EVENT_WNDW_CONFIG WHERE ACT_IN = 1" +
			" ORDER BY WNDW_CONFIG_NM FETCH FIRST :1 ROWS ONLY"),
		configByID: oracleStatement("SELECT " + oracleConfigColumns + " FROM RL_EVENT_WNDW_CONFIG WHERE RL_WNDW_CONFIG_ID = :1"),
		deactivate: oracleStatement("UPDATE RL_EVENT_WNDW_CONFIG SET ACT_IN = 0 WHERE WNDW_CONFIG_NM = :1 AND ACT_IN = 1"),
		insertConfig: oracleStatement("INSERT INTO RL_EVENT_WNDW_CONFIG (" + configColumns + ")" +
			" SELECT :1, :2, :3, :4, :5, {now}, 1, {now} FROM DUAL"),

		bump:       oracleStatement("UPDATE RL_SLOT_CTL SET GEN_CT = GEN_CT + 1 WHERE CTL_NM = 'generation'"),
		generation: oracleStatement("SELECT GEN_CT FROM RL_SLOT_CTL WHERE CTL_NM = 'generation'"),

		since: oracleStatement("SELECT " + oracleSlotColumns + " FROM RL_EVENT_SLOT_DTL" +
			" WHERE CREAT_TS > {1} OR (CREAT_TS = {2} AND WNDW_SLOT_ID > NVL(:3, CHR(0)))" +
			" ORDER BY RL_EVENT_SLOT_DTL.CREAT_TS, WNDW_SLOT_ID FETCH FIRST :4 ROWS ONLY"),
		windows: oracleStatement("SELECT {WNDW_STRT_TS}, SLOT_CT FROM RL_WNDW_CT" +
			" WHERE WNDW_SCOPE_NM = :1 AND WNDW_SIZE_MS = :2 AND WNDW_STRT_TS >= {3} AND WNDW_STRT_TS < {4}" +
			" ORDER BY RL_WNDW_CT.WNDW_STRT_TS FETCH FIRST :5 ROWS ONLY"),

		lead: oracleStatement("UPDATE RL_SLOT_CTL SET HOLDER_ID = :1, HELD_UNTIL_TS = {now} + NUMTODSINTERVAL(:2 / 1000000, 'SECOND')" +
			" WHERE CTL_NM = :3 AND (HOLDER_ID = :4 OR HOLDER_ID IS NULL OR HELD_UNTIL_TS <= {now})"),
		addLeader: oracleStatement("INSERT /*+ IGNORE_ROW_ON_DUPKEY_INDEX(RL_SLOT_CTL, RL_SLOT_CTL_PK) */ INTO RL_SLOT_CTL (CTL_NM, GEN_CT)" +
			" SELECT N.CTL_NM, 0 FROM (SELECT :1 CTL_NM FROM DUAL) N WHERE NOT EXISTS (SELECT 1 FROM RL_SLOT_CTL C WHERE C.CTL_NM = N.CTL_NM)"),

		purgeFrontiers: oracleStatement("DELETE FROM RL_WNDW_FRONTIER_TRK" +
			" WHERE REQ_TS + NUMTODSINTERVAL(WNDW_SIZE_MS / 1000, 'SECOND') <= {1} AND CREAT_TS < {2} AND ROWNUM <= :3"),
		purgeWindows: oracleStatement("DELETE FROM RL_WNDW_CT"+
			" WHERE WNDW_STRT_TS <= {1} AND WNDW_STRT_TS + NUMTODSINTERVAL(WNDW_SIZE_MS / 1000, 'SECOND') <= {2}"+
			" AND CREAT_TS < {3} AND ROWNUM <= :4", 0, 0, 1, 2),
		purgeSlots: oracleStatement("DELETE FROM RL_EVENT_SLOT_DTL WHERE CREAT_TS < {1} AND COMPUTED_SCHED_TS < {2} AND ROWNUM <= :3", 0, 0, 1),

		dropWindows:   oracleStatement("DELETE FROM RL_WNDW_CT WHERE WNDW_SCOPE_NM = :1 AND WNDW_SIZE_MS = :2"),
		dropFrontiers: oracleStatement("DELETE FROM RL_WNDW_FRONTIER_TRK WHERE WNDW_SCOPE_NM = :1 AND WNDW_SIZE_MS = :2"),

		keys: oracleStatement("SELECT WNDW_SCOPE_NM, WNDW_SIZE_MS, {WNDW_STRT_TS} FROM RL_WNDW_CT"+
			" WHERE WNDW_SIZE_MS > 0 AND WNDW_STRT_TS >= {1} AND WNDW_STRT_TS < {2}"+
			" AND (WNDW_SCOPE_NM > NVL(:3, CHR(0)) OR (WNDW_SCOPE_NM = :4 AND (WNDW_SIZE_MS > :5 OR (WNDW_SIZE_MS = :6 AND WNDW_STRT_TS > {7}))))"+
			" ORDER BY WNDW_SCOPE_NM, WNDW_SIZE_MS, RL_WNDW_CT.WNDW_STRT_TS FETCH FIRST :8 ROWS ONLY", 0, 1, 2, 2, 3, 3, 4, 5),
		compare: oracleStatement("SELECT C.SLOT_CT, (SELECT COUNT(*) FROM RL_EVENT_SLOT_DTL S WHERE S.WNDW_SCOPE_NM = C.WNDW_SCOPE_NM"+
			" AND S.COMPUTED_SCHED_TS >= C.WNDW_STRT_TS AND S.COMPUTED_SCHED_TS < {1})"+
			" FROM RL_WNDW_CT C WHERE C.WNDW_SCOPE_NM = :2 AND C.WNDW_SIZE_MS = :3 AND C.WNDW_STRT_TS = {4}", 3, 0, 1, 2),
	}
}

// oracleProvision counts by the index on (WNDW_SCOPE_NM, COMPUTED_SCHED_TS), for
// missing windows only.
const oracleProvision = "INSERT /*+ IGNORE_ROW_ON_DUPKEY_INDEX(RL_WNDW_CT, RL_WNDW_CT_PK) */" +
	" INTO RL_WNDW_CT (WNDW_SCOPE_NM, WNDW_SIZE_MS, WNDW_STRT_TS, SLOT_CT, CREAT_TS)" +
	" SELECT W.SCOPE_NM, W.SIZE_MS, W.STRT_TS, (SELECT COUNT(*) FROM RL_EVENT_SLOT_DTL S WHERE S.WNDW_SCOPE_NM = W.SCOPE_NM" +
	" AND S.COMPUTED_SCHED_TS >= W.STRT_TS AND S.COMPUTED_SCHED_TS < W.STRT_TS + NUMTODSINTERVAL(W.SIZE_MS / 1000, 'SECOND')), {now}" +
	" FROM (SELECT A.SCOPE_NM, A.SIZE_MS, A.FROM_TS + NUMTODSINTERVAL((LEVEL - 1) * A.SIZE_MS / 1000, 'SECOND') STRT_TS" +
	" FROM (SELECT :1 SCOPE_NM, :2 SIZE_MS, {3} FROM_TS, :4 WNDW_CT FROM DUAL) A CONNECT BY LEVEL <= A.WNDW_CT) W" +
	" WHERE NOT EXISTS (SELECT 1 FROM RL_WNDW_CT C" +
	" WHERE C.WNDW_SCOPE_NM = W.SCOPE_NM AND C.WNDW_SIZE_MS = W.SIZE_MS AND C.WNDW_STRT_TS = W.STRT_TS)" +
	" ORDER BY W.STRT_TS"

func oracleStatement(sql string, order ...int) statement { return text(oracleSQL(sql), order...) }
