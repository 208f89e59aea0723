-- The epoch of a scope and a window size. A change that has windows counted anew adds to it:
-- rows of RL_WNDW_CT of earlier epochs count for nothing, and are counted again when their
-- window is claimed.
CREATE TABLE IF NOT EXISTS RL_WNDW_EPOCH (
    WNDW_SCOPE_NM VARCHAR(128) NOT NULL,
    WNDW_SIZE_MS  BIGINT       NOT NULL,
    EPOCH_CT      BIGINT       NOT NULL,
    PRIMARY KEY (WNDW_SCOPE_NM, WNDW_SIZE_MS)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE ${COLLATION}
/
ALTER TABLE RL_WNDW_CT ADD COLUMN EPOCH_CT BIGINT NOT NULL DEFAULT 0
/
-- The version of the schema that the writer of a row knows. A program that knows no such
-- column cannot insert: it would not see epochs.
ALTER TABLE RL_EVENT_SLOT_DTL ADD COLUMN SCHEMA_NB SMALLINT NOT NULL DEFAULT 0
/
ALTER TABLE RL_EVENT_SLOT_DTL ALTER COLUMN SCHEMA_NB DROP DEFAULT
/
ALTER TABLE RL_EVENT_WNDW_CONFIG ADD COLUMN SCHEMA_NB SMALLINT NOT NULL DEFAULT 0
/
ALTER TABLE RL_EVENT_WNDW_CONFIG ALTER COLUMN SCHEMA_NB DROP DEFAULT
