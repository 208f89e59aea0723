-- One row for each change of a policy, written by what changes it. CHANGE_ID grows with each change;
-- GENERATION is the one of HEADGATE_POLICY_STATE that the change made. BEFORE_VERSION or
-- AFTER_VERSION is NULL where there was no policy. Who writes removes the oldest changes.
CREATE TABLE IF NOT EXISTS HEADGATE_POLICY_CHANGE (
    CHANGE_ID             INTEGER       NOT NULL PRIMARY KEY,
    GENERATION            BIGINT        NOT NULL,
    POLICY_KEY            VARCHAR(255)  NOT NULL,
    CHANGED_BY            VARCHAR(128)  NOT NULL DEFAULT '',
    CHANGED_US            BIGINT        NOT NULL, -- microseconds since 1970
    BEFORE_TYPE           VARCHAR(50),
    BEFORE_CAPACITY       BIGINT,
    BEFORE_REFILL_RATE    DECIMAL(18,6),
    BEFORE_WINDOW_SECONDS DECIMAL(18,6),
    BEFORE_VERSION        BIGINT,
    AFTER_TYPE            VARCHAR(50),
    AFTER_CAPACITY        BIGINT,
    AFTER_REFILL_RATE     DECIMAL(18,6),
    AFTER_WINDOW_SECONDS  DECIMAL(18,6),
    AFTER_VERSION         BIGINT
)
/
CREATE INDEX IF NOT EXISTS IDX_POLICY_CHANGE_KEY ON HEADGATE_POLICY_CHANGE (POLICY_KEY, CHANGE_ID)
/
