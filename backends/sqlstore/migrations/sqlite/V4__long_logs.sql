-- Old parts of long sliding logs: each is written once, and deleted once. PART has the form of a STATE; LAST_US
-- is the instant of its newest record. What the row of HEADGATE_STATE has for it is one record, with the units
-- that still count; M says how many such records it begins with.
CREATE TABLE IF NOT EXISTS HEADGATE_LOG (
    K       BLOB    NOT NULL,
    LAST_US INTEGER NOT NULL,
    PART    BLOB    NOT NULL,
    PRIMARY KEY (K, LAST_US)
) WITHOUT ROWID
/
DROP VIEW IF EXISTS HEADGATE_REQUESTS
/
-- A log is numbers of seven bits a byte, the last byte of each below 128: the version, three figures, how
-- many records, and for each the microseconds since the one before, and its units. Those that stand for parts
-- are left out. The oldest part may have admissions that no longer count.
CREATE VIEW IF NOT EXISTS HEADGATE_REQUESTS AS
WITH RECURSIVE LOGS AS (
    SELECT K, GROUP_TX, LIMIT_TX, 0 AS PART_US, M AS PARTS, STATE FROM HEADGATE_COUNTERS WHERE ALGORITHM_NM = 'sliding_log'
    UNION ALL
    SELECT C.K, C.GROUP_TX, C.LIMIT_TX, L.LAST_US, 0, L.PART FROM HEADGATE_COUNTERS C JOIN HEADGATE_LOG L ON L.K = C.K
    WHERE C.ALGORITHM_NM = 'sliding_log'
), PLACES (I) AS (
    SELECT 2 UNION ALL SELECT I + 1 FROM PLACES WHERE I < (SELECT MAX(length(STATE)) FROM LOGS)
), BYTES AS (
    SELECT C.K, C.GROUP_TX, C.LIMIT_TX, C.PART_US, C.PARTS, I, 16 * (instr('0123456789ABCDEF', substr(hex(substr(C.STATE, I, 1)), 1, 1)) - 1)
           + instr('0123456789ABCDEF', substr(hex(substr(C.STATE, I, 1)), 2, 1)) - 1 AS B
    FROM LOGS C JOIN PLACES ON I <= length(C.STATE)
), PLACED AS (
    SELECT BYTES.*, COALESCE(SUM(CASE WHEN B < 128 THEN 1 ELSE 0 END) OVER (PARTITION BY K, PART_US ORDER BY I ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS F FROM BYTES
), SHIFTED AS (
    SELECT PLACED.*, ROW_NUMBER() OVER (PARTITION BY K, PART_US, F ORDER BY I) - 1 AS J FROM PLACED
), NUMBERS AS (
    SELECT K, GROUP_TX, LIMIT_TX, PART_US, PARTS, F, SUM((B & 127) << (7 * J)) AS V FROM SHIFTED GROUP BY K, GROUP_TX, LIMIT_TX, PART_US, PARTS, F
), RECORDS AS (
    SELECT K, GROUP_TX, LIMIT_TX, PART_US, PARTS, F, SUM(CASE WHEN F >= 4 AND F % 2 = 0 THEN V ELSE 0 END) OVER (PARTITION BY K, PART_US ORDER BY F) AS US, V FROM NUMBERS
)
SELECT GROUP_TX, LIMIT_TX, strftime('%Y-%m-%d %H:%M:%S', US / 1000000, 'unixepoch') || printf('.%06d', US % 1000000) AS REQUEST_TS, V AS UNITS
FROM RECORDS WHERE F >= 5 + 2 * PARTS AND F % 2 = 1
/
