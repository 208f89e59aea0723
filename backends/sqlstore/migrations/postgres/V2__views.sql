-- What people look for: counters by the names that rules have, tokens, windows and the times of requests.
-- headgate does not read them.
CREATE OR REPLACE VIEW HEADGATE_COUNTERS AS
SELECT K, encode(substring(K FROM P + 1 FOR LEN), 'escape') AS GROUP_TX, encode(substring(K FROM P + LEN + 1), 'escape') AS LIMIT_TX,
       CASE encode(substring(K FROM P + LEN + 1 FOR 1), 'escape') WHEN 'f' THEN 'fixed_window' WHEN 'l' THEN 'sliding_log'
           WHEN 'w' THEN 'sliding_window' WHEN 't' THEN 'token_bucket' WHEN 'c' THEN 'concurrency' END AS ALGORITHM_NM,
       to_timestamp(AT_US / 1000000) + AT_US % 1000000 * INTERVAL '1 microsecond' AS AT_TS,
       to_timestamp(ENDS_US / 1000000) + ENDS_US % 1000000 * INTERVAL '1 microsecond' AS ENDS_TS, N, M, STATE
FROM HEADGATE_STATE
CROSS JOIN LATERAL (SELECT position('\x3a'::bytea IN K) AS P) AS COLON
CROSS JOIN LATERAL (SELECT encode(substring(K FROM 1 FOR P - 1), 'escape')::int AS LEN) AS PREFIX
WHERE K >= '\x30' AND K < '\x3a'
/
CREATE OR REPLACE VIEW HEADGATE_TOKEN_BUCKETS AS
SELECT GROUP_TX, LIMIT_TX, N / M AS TOKENS, AT_TS AS LAST_REFILL_TS, ENDS_TS AS FULL_TS FROM HEADGATE_COUNTERS
WHERE ALGORITHM_NM = 'token_bucket' AND M > 0
/
CREATE OR REPLACE VIEW HEADGATE_WINDOWS AS
SELECT GROUP_TX, LIMIT_TX, AT_TS AS WINDOW_STRT_TS, N AS UNITS, M AS UNITS_BEFORE FROM HEADGATE_COUNTERS
WHERE ALGORITHM_NM IN ('fixed_window', 'sliding_window')
/
-- A log is numbers of seven bits a byte, the last byte of each below 128: the version, three figures, how
-- many records, and for each the microseconds since the one before, and its units.
CREATE OR REPLACE VIEW HEADGATE_REQUESTS AS
WITH BYTES AS (
    SELECT C.K, C.GROUP_TX, C.LIMIT_TX, I, get_byte(C.STATE, I) AS B FROM HEADGATE_COUNTERS C
    CROSS JOIN LATERAL generate_series(1, length(C.STATE) - 1) AS I WHERE C.ALGORITHM_NM = 'sliding_log'
), PLACED AS (
    SELECT BYTES.*, COALESCE(SUM(CASE WHEN B < 128 THEN 1 ELSE 0 END) OVER (PARTITION BY K ORDER BY I ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS F FROM BYTES
), SHIFTED AS (
    SELECT PLACED.*, ROW_NUMBER() OVER (PARTITION BY K, F ORDER BY I) - 1 AS J FROM PLACED
), NUMBERS AS (
    SELECT K, GROUP_TX, LIMIT_TX, F, SUM((B & 127)::bigint << (7 * J)::int)::bigint AS V FROM SHIFTED GROUP BY K, GROUP_TX, LIMIT_TX, F
), RECORDS AS (
    SELECT K, GROUP_TX, LIMIT_TX, F, SUM(CASE WHEN F >= 4 AND F % 2 = 0 THEN V ELSE 0 END) OVER (PARTITION BY K ORDER BY F)::bigint AS US, V FROM NUMBERS
)
SELECT GROUP_TX, LIMIT_TX, to_timestamp(US / 1000000) + US % 1000000 * INTERVAL '1 microsecond' AS REQUEST_TS, V AS UNITS
FROM RECORDS WHERE F >= 5 AND F % 2 = 1
/
