-- What people look for: counters by the names that rules have, tokens, windows and the times of requests,
-- in UTC. headgate does not read them.
CREATE VIEW IF NOT EXISTS HEADGATE_COUNTERS AS
SELECT K, CAST(substr(K, P + 1, LEN) AS TEXT) AS GROUP_TX, CAST(substr(K, P + LEN + 1) AS TEXT) AS LIMIT_TX,
       CASE CAST(substr(K, P + LEN + 1, 1) AS TEXT) WHEN 'f' THEN 'fixed_window' WHEN 'l' THEN 'sliding_log'
           WHEN 'w' THEN 'sliding_window' WHEN 't' THEN 'token_bucket' WHEN 'c' THEN 'concurrency' END AS ALGORITHM_NM,
       strftime('%Y-%m-%d %H:%M:%S', AT_US / 1000000, 'unixepoch') || printf('.%06d', AT_US % 1000000) AS AT_TS,
       strftime('%Y-%m-%d %H:%M:%S', ENDS_US / 1000000, 'unixepoch') || printf('.%06d', ENDS_US % 1000000) AS ENDS_TS, N, M, STATE
FROM (SELECT S.*, instr(K, x'3A') AS P, CAST(CAST(substr(K, 1, instr(K, x'3A') - 1) AS TEXT) AS INTEGER) AS LEN FROM HEADGATE_STATE S
      WHERE K >= x'30' AND K < x'3A')
/
CREATE VIEW IF NOT EXISTS HEADGATE_TOKEN_BUCKETS AS
SELECT GROUP_TX, LIMIT_TX, N / M AS TOKENS, AT_TS AS LAST_REFILL_TS, ENDS_TS AS FULL_TS FROM HEADGATE_COUNTERS
WHERE ALGORITHM_NM = 'token_bucket' AND M > 0
/
CREATE VIEW IF NOT EXISTS HEADGATE_WINDOWS AS
SELECT GROUP_TX, LIMIT_TX, AT_TS AS WINDOW_STRT_TS, N AS UNITS, M AS UNITS_BEFORE FROM HEADGATE_COUNTERS
WHERE ALGORITHM_NM IN ('fixed_window', 'sliding_window')
/
-- A log is numbers of seven bits a byte, the last byte of each below 128: the version, three figures, how
-- many records, and for each the microseconds since the one before, and its units.
CREATE VIEW IF NOT EXISTS HEADGATE_REQUESTS AS
WITH RECURSIVE PLACES (I) AS (
    SELECT 2 UNION ALL SELECT I + 1 FROM PLACES WHERE I < (SELECT MAX(length(STATE)) FROM HEADGATE_STATE)
), BYTES AS (
    SELECT C.K, C.GROUP_TX, C.LIMIT_TX, I, 16 * (instr('0123456789ABCDEF', substr(hex(substr(C.STATE, I, 1)), 1, 1)) - 1)
           + instr('0123456789ABCDEF', substr(hex(substr(C.STATE, I, 1)), 2, 1)) - 1 AS B
    FROM HEADGATE_COUNTERS C JOIN PLACES ON I <= length(C.STATE) WHERE C.ALGORITHM_NM = 'sliding_log'
), PLACED AS (
    SELECT BYTES.*, COALESCE(SUM(CASE WHEN B < 128 THEN 1 ELSE 0 END) OVER (PARTITION BY K ORDER BY I ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS F FROM BYTES
), SHIFTED AS (
    SELECT PLACED.*, ROW_NUMBER() OVER (PARTITION BY K, F ORDER BY I) - 1 AS J FROM PLACED
), NUMBERS AS (
    SELECT K, GROUP_TX, LIMIT_TX, F, SUM((B & 127) << (7 * J)) AS V FROM SHIFTED GROUP BY K, GROUP_TX, LIMIT_TX, F
), RECORDS AS (
    SELECT K, GROUP_TX, LIMIT_TX, F, SUM(CASE WHEN F >= 4 AND F % 2 = 0 THEN V ELSE 0 END) OVER (PARTITION BY K ORDER BY F) AS US, V FROM NUMBERS
)
SELECT GROUP_TX, LIMIT_TX, strftime('%Y-%m-%d %H:%M:%S', US / 1000000, 'unixepoch') || printf('.%06d', US % 1000000) AS REQUEST_TS, V AS UNITS
FROM RECORDS WHERE F >= 5 AND F % 2 = 1
/
