package sqlstore

import (
	"regexp"
	"strconv"
	"strings"

	"github.com/headgate-rls/headgate/internal/kit/sqldb"
)

// words has the parts of statements that differ between dialects. Templates name them in braces, and refer to arguments
// by their numbers:
//
//	:1 a text, #1 an integer, @1 an instant
//	{COLUMN} an instant among the results
//	{now} the database's clock; {dual} where a SELECT has no table
//	{lock} locks rows; {pass} skips rows that are locked; {wait} waits for a lock for a second at most
//	{first} only one row; {most #1} at most so many
//	{plus X|Y} the instant X and Y milliseconds
//	{nth X|Y|Z} the number of the window of Z milliseconds that the instant X is in, counted from the instant Y
//	{insert T} inserts into a table with a primary key; {skip T} at the end: unless the key is there
//	{fill T} and {filled} at the end: the same, but existing rows do not count as changed
//	{purge T|K|C} deletes the rows of the table T, whose key is K, that C selects, but for those that are locked
//	{purgeBy T|K|C|I} is {purge} for rows that others update at any time: the index I has all that C reads, and no column
//	that they update
//	{renew} at the end of an insert into RL_WNDW_CT: a row of an earlier epoch is written anew
//	{epoch} the epoch of the series :1, #2
//	{key :1} a text that may be empty
//	{active :1} one more column: ACT_IN of a version, unless its gate returns that
type words struct {
	*sqldb.Dialect
	place   func(n int) string
	types   map[byte]string   // follow placeholders of texts and integers
	ordered bool              // each placeholder is an argument of its own: 1, 2, 3 …
	texts   map[string]string // by word; $1, $2 … are the parts that follow the word, separated by |
}

// commonTexts are the texts of words that are missing in words.texts.
var commonTexts = map[string]string{
	"purge":   "DELETE FROM $1 WHERE ($2) IN (SELECT $2 FROM $1 WHERE $3{pass})",
	"purgeBy": "{purge $1|$2|$3}",
	"dual":    "", "lock": "", "pass": "", "wait": "", "skip": "", "filled": "", "renew": "",
	"first": "{most 1}", "most": "LIMIT $1", "key": "$1",
	"epoch":  "COALESCE((SELECT EPOCH_CT FROM RL_WNDW_EPOCH WHERE WNDW_SCOPE_NM = :1 AND WNDW_SIZE_MS = #2), 0)",
	"active": ", (SELECT ACT_IN FROM RL_EVENT_WNDW_CONFIG WHERE RL_WNDW_CONFIG_ID = $1)",
}

var (
	wordPattern     = regexp.MustCompile(`\{([^{}]*)\}`)
	argumentPattern = regexp.MustCompile(`([:#@])([0-9]+)`)
)

// text makes a statement.
func (w *words) text(template string) statement {
	for strings.Contains(template, "{") {
		template = wordPattern.ReplaceAllStringFunc(template,
			func(mark string) string { return w.word(mark[1 : len(mark)-1]) })
	}
	var s statement
	s.text = argumentPattern.ReplaceAllStringFunc(template, func(mark string) string {
		n, _ := strconv.Atoi(mark[1:]) // digits only
		if w.ordered {
			s.order = append(s.order, n-1)
			n = len(s.order)
		}
		if mark[0] == '@' {
			return w.Bound(w.place(n))
		}
		return w.place(n) + w.types[mark[0]]
	})
	return s
}

func (w *words) word(mark string) string {
	name, rest, _ := strings.Cut(mark, " ")
	text, ok := w.texts[name]
	if !ok {
		text, ok = commonTexts[name]
	}
	switch {
	case name == "now":
		return w.Now
	case !ok:
		return w.Selected(mark)
	}
	for i, part := range strings.Split(rest, "|") {
		text = strings.ReplaceAll(text, "$"+strconv.Itoa(i+1), part)
	}
	return text
}

// Columns with their instants marked.
const (
	slotResults = "WNDW_SLOT_ID, EVENT_ID, WNDW_SCOPE_NM, WNDW_SIZE_MS, {REQ_TS}, {WNDW_STRT_TS}, " +
		"{COMPUTED_SCHED_TS}, RL_WNDW_CONFIG_ID, {CREAT_TS}"
	configResults = "RL_WNDW_CONFIG_ID, WNDW_CONFIG_NM, WNDW_MAX_EVENT_CT, WNDW_SIZE_ISO_DUR_TX, CONFIG_OPT_TX, " +
		"{CONFIG_EFF_STRT_DT}, ACT_IN, {CREAT_TS}"
)

// statements returns those that dialects have in common.
func (w *words) statements() statements {
	const window = " WHERE WNDW_SCOPE_NM = :1 AND WNDW_SIZE_MS = #2 AND WNDW_STRT_TS = @3"
	const current = " AND EPOCH_CT = {epoch}"
	const config = "SELECT " + configResults + " FROM RL_EVENT_WNDW_CONFIG WHERE "
	const run = " FROM RL_WNDW_FULL_RUN WHERE WNDW_SCOPE_NM = :1 AND WNDW_SIZE_MS = #2 AND WNDW_MAX_EVENT_CT = #3"
	const slotsInside = "(SELECT COUNT(*) FROM RL_EVENT_SLOT_DTL WHERE WNDW_SCOPE_NM = :1 AND COMPUTED_SCHED_TS >= @3 " +
		"AND COMPUTED_SCHED_TS < @4)"
	t := w.text
	kept := func(template string) statement {
		s := t(template)
		s.kept = true
		return s
	}
	return statements{
		peek: kept("SELECT SLOT_CT FROM RL_WNDW_CT" + window + current),
		windows: t("SELECT {C.WNDW_STRT_TS}, C.SLOT_CT FROM RL_WNDW_CT C WHERE C.WNDW_SCOPE_NM = :1 AND C.WNDW_SIZE_MS = #2" +
			" AND C.WNDW_STRT_TS >= @3 AND C.WNDW_STRT_TS < @4 AND C.EPOCH_CT = {epoch} ORDER BY C.WNDW_STRT_TS {most #5}"),
		make: t("{insert RL_WNDW_CT} (WNDW_SCOPE_NM, WNDW_SIZE_MS, WNDW_STRT_TS, SLOT_CT, CREAT_TS, EPOCH_CT)" +
			" SELECT :1, #2, @3, " + slotsInside + ", {now}, {epoch}{dual} WHERE NOT EXISTS (SELECT 1 FROM RL_WNDW_CT" +
			window + current + "){renew}"),
		provision: t(`{fill RL_WNDW_CT} (WNDW_SCOPE_NM, WNDW_SIZE_MS, WNDW_STRT_TS, SLOT_CT, CREAT_TS, EPOCH_CT)
WITH RECURSIVE W (N) AS (SELECT 0 UNION ALL SELECT N + 1 FROM W WHERE N + 1 < #4),
C (N, CT) AS (SELECT {nth COMPUTED_SCHED_TS|@3|#2}, COUNT(*) FROM RL_EVENT_SLOT_DTL
 WHERE WNDW_SCOPE_NM = :1 AND COMPUTED_SCHED_TS >= @3 AND COMPUTED_SCHED_TS < {plus @3|#4 * #2} GROUP BY 1)
SELECT :1, #2, {plus @3|W.N * #2}, COALESCE(C.CT, 0), {now}, {epoch}
  FROM W LEFT JOIN C ON C.N = W.N
 WHERE NOT EXISTS (SELECT 1 FROM RL_WNDW_CT T
        WHERE T.WNDW_SCOPE_NM = :1 AND T.WNDW_SIZE_MS = #2 AND T.WNDW_STRT_TS = {plus @3|W.N * #2}
          AND T.WNDW_STRT_TS >= @3 AND T.WNDW_STRT_TS < {plus @3|#4 * #2})
 ORDER BY W.N{filled}`),
		scheduled: t("SELECT N, COUNT(*) FROM (SELECT {nth COMPUTED_SCHED_TS|@3|#2} AS N FROM RL_EVENT_SLOT_DTL" +
			" WHERE WNDW_SCOPE_NM = :1 AND COMPUTED_SCHED_TS >= @3 AND COMPUTED_SCHED_TS < @4) W GROUP BY N ORDER BY N"),
		stale: t("SELECT {C.WNDW_STRT_TS} FROM RL_WNDW_CT C WHERE C.WNDW_SCOPE_NM = :1 AND C.WNDW_SIZE_MS = #2" +
			" AND C.WNDW_STRT_TS >= @3 AND C.WNDW_STRT_TS < @4 AND C.EPOCH_CT <> {epoch}"),
		dropStale: t("DELETE FROM RL_WNDW_CT" + window + " AND EPOCH_CT <> {epoch}"),
		bumpEpoch: t("UPDATE RL_WNDW_EPOCH SET EPOCH_CT = EPOCH_CT + 1 WHERE WNDW_SCOPE_NM = :1 AND WNDW_SIZE_MS = #2"),
		addEpoch:  t("INSERT INTO RL_WNDW_EPOCH (WNDW_SCOPE_NM, WNDW_SIZE_MS, EPOCH_CT) SELECT :1, #2, 1{dual}"),
		lock: kept("SELECT SLOT_CT{active :5} FROM RL_WNDW_CT" +
			window + " AND SLOT_CT < #4" + current + "{wait}"),
		lockWait: t("SELECT SLOT_CT FROM RL_WNDW_CT" + window + "{lock}"),
		count: t("SELECT COUNT(*) FROM RL_EVENT_SLOT_DTL WHERE WNDW_SCOPE_NM = :1" +
			" AND COMPUTED_SCHED_TS >= @2 AND COMPUTED_SCHED_TS < @3"),
		setCount: t("UPDATE RL_WNDW_CT SET SLOT_CT = #1 WHERE WNDW_SCOPE_NM = :2 AND WNDW_SIZE_MS = #3 AND " +
			"WNDW_STRT_TS = @4"),
		slotIn: t("SELECT WNDW_SLOT_ID FROM RL_EVENT_SLOT_DTL WHERE WNDW_SCOPE_NM = :1 {first}"),

		frontier: t("SELECT {MAX(WNDW_END_TS)} FROM RL_WNDW_FRONTIER_TRK WHERE WNDW_SCOPE_NM = :1 AND WNDW_SIZE_MS = #2 " +
			"AND REQ_TS = @3"),
		addFrontier: t("{insert RL_WNDW_FRONTIER_TRK} (WNDW_SCOPE_NM, WNDW_SIZE_MS, REQ_TS, WNDW_END_TS, CREAT_TS)" +
			" SELECT :1, #2, @3, @4, {now}{dual} WHERE NOT EXISTS (SELECT 1 FROM RL_WNDW_FRONTIER_TRK" +
			" WHERE WNDW_SCOPE_NM = :1 AND WNDW_SIZE_MS = #2 AND REQ_TS = @3 AND WNDW_END_TS = @4){skip RL_WNDW_FRONTIER_TRK}"),

		run:         t("SELECT {RUN_END_TS}" + run + " AND RUN_STRT_TS <= @4 ORDER BY RUN_STRT_TS DESC {first}"),
		overlaps:    t("SELECT {MIN(RUN_STRT_TS)}, {MAX(RUN_END_TS)}" + run + " AND RUN_STRT_TS <= @5 AND RUN_END_TS >= @4"),
		dropOverlap: t("DELETE" + run + " AND RUN_STRT_TS <= @5 AND RUN_END_TS >= @4"),
		addRun: t("INSERT INTO RL_WNDW_FULL_RUN (WNDW_SCOPE_NM, WNDW_SIZE_MS, WNDW_MAX_EVENT_CT, RUN_STRT_TS, RUN_END_TS)" +
			" SELECT :1, #2, #3, @4, @5{dual}"),
		dropRuns:    t("DELETE FROM RL_WNDW_FULL_RUN WHERE WNDW_SCOPE_NM = :1 AND WNDW_SIZE_MS = #2"),
		dropOldRuns: t("DELETE FROM RL_WNDW_FULL_RUN WHERE RUN_STRT_TS < @1"),
		purgeRuns: t("{purge RL_WNDW_FULL_RUN|WNDW_SCOPE_NM, WNDW_SIZE_MS, WNDW_MAX_EVENT_CT, RUN_STRT_TS|" +
			"RUN_END_TS < @1}"),

		activeConfig:  t(config + "WNDW_CONFIG_NM = :1 AND ACT_IN = 1"),
		activeConfigs: t(config + "ACT_IN = 1 ORDER BY WNDW_CONFIG_NM {most #1}"),
		configByID:    t(config + "RL_WNDW_CONFIG_ID = :1"),
		deactivate:    t("UPDATE RL_EVENT_WNDW_CONFIG SET ACT_IN = 0 WHERE WNDW_CONFIG_NM = :1 AND ACT_IN = 1"),
		insertConfig: t("INSERT INTO RL_EVENT_WNDW_CONFIG (" + configColumns + ", SCHEMA_NB)" +
			" SELECT :1, :2, #3, :4, :5, {now}, 1, {now}, " + schemaNumber + "{dual}"),

		bump:           t("UPDATE RL_SLOT_CTL SET GEN_CT = GEN_CT + 1 WHERE CTL_NM = 'generation'"),
		generation:     t("SELECT GEN_CT FROM RL_SLOT_CTL WHERE CTL_NM = 'generation'"),
		lockGeneration: t("SELECT GEN_CT FROM RL_SLOT_CTL WHERE CTL_NM = 'generation'{lock}"),
		control:        t("SELECT HOLDER_ID FROM RL_SLOT_CTL WHERE CTL_NM = :1"),
		setScope:       t("UPDATE RL_SLOT_CTL SET HOLDER_ID = :1 WHERE CTL_NM = 'scope' AND HOLDER_ID IS NULL"),

		since: t("SELECT " + slotResults +
			" FROM RL_EVENT_SLOT_DTL WHERE CREAT_TS >= @1 AND (CREAT_TS > @2 OR WNDW_SLOT_ID > {key :3})" +
			" ORDER BY RL_EVENT_SLOT_DTL.CREAT_TS, WNDW_SLOT_ID {most #4}"),

		lead: t("UPDATE RL_SLOT_CTL SET HOLDER_ID = :1, HELD_UNTIL_TS = {plus {now}|#2}" +
			" WHERE CTL_NM = :3 AND (HOLDER_ID = :4 OR HOLDER_ID IS NULL OR HELD_UNTIL_TS <= {now})"),
		addLeader: t("{fill RL_SLOT_CTL} (CTL_NM, GEN_CT) SELECT :1, 0{dual} WHERE NOT EXISTS" +
			" (SELECT 1 FROM RL_SLOT_CTL WHERE CTL_NM = :1){filled}"),

		clock: t("SELECT {{now}}{dual}"),

		purgeFrontiers: t("{purge RL_WNDW_FRONTIER_TRK|WNDW_SCOPE_NM, WNDW_SIZE_MS, REQ_TS, WNDW_END_TS|" +
			"{plus REQ_TS|WNDW_SIZE_MS} <= @1 AND CREAT_TS < @2 {most #3}}"),
		purgeWindows: t("{purgeBy RL_WNDW_CT|WNDW_SCOPE_NM, WNDW_SIZE_MS, WNDW_STRT_TS|" +
			"{plus WNDW_STRT_TS|WNDW_SIZE_MS} <= @1 AND CREAT_TS < @2 {most #3}|RL_WNDW_CT_I02X}"),
		purgeSlots: t("{purge RL_EVENT_SLOT_DTL|WNDW_SLOT_ID|" +
			"CREAT_TS < @1 AND COMPUTED_SCHED_TS < @1 ORDER BY CREAT_TS {most #2}}"),
		dropFrontiers: t("DELETE FROM RL_WNDW_FRONTIER_TRK WHERE WNDW_SCOPE_NM = :1 AND WNDW_SIZE_MS = #2"),

		drift: t("SELECT {C.WNDW_STRT_TS}, C.SLOT_CT, (SELECT COUNT(*) FROM RL_EVENT_SLOT_DTL S WHERE S.WNDW_SCOPE_NM = " +
			"C.WNDW_SCOPE_NM" +
			" AND S.COMPUTED_SCHED_TS >= C.WNDW_STRT_TS AND S.COMPUTED_SCHED_TS < {plus C.WNDW_STRT_TS|C.WNDW_SIZE_MS})" +
			" FROM RL_WNDW_CT C WHERE C.WNDW_SCOPE_NM = :1 AND C.WNDW_SIZE_MS = #2 AND C.WNDW_STRT_TS >= @3 AND " +
			"C.WNDW_STRT_TS < @4" +
			" AND C.EPOCH_CT = {epoch} ORDER BY C.WNDW_STRT_TS {most #5}"),
	}
}
