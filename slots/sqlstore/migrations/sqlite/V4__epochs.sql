-- The epoch of a scope and a window size. A change that has windows counted anew adds to it:
-- rows of RL_WNDW_CT of earlier epochs count for nothing, and are counted again when their
-- window is claimed.
CREATE TABLE RL_WNDW_EPOCH (
    WNDW_SCOPE_NM TEXT    NOT NULL,
    WNDW_SIZE_MS  INTEGER NOT NULL,
    EPOCH_CT      INTEGER NOT NULL,
    CONSTRAINT RL_WNDW_EPOCH_PK PRIMARY KEY (WNDW_SCOPE_NM, WNDW_SIZE_MS)
) WITHOUT ROWID
/
ALTER TABLE RL_WNDW_CT ADD COLUMN EPOCH_CT INTEGER NOT NULL DEFAULT 0
/
-- The version of the schema that the writer of a row knows. A program that knows no such
-- column cannot insert: it would not see epochs.
ALTER TABLE RL_EVENT_SLOT_DTL ADD COLUMN SCHEMA_NB INTEGER
/
CREATE TRIGGER RL_EVENT_SLOT_DTL_TR BEFORE INSERT ON RL_EVENT_SLOT_DTL WHEN NEW.SCHEMA_NB IS NULL
BEGIN
    SELECT RAISE(ABORT, 'this program is older than the schema: SCHEMA_NB is missing');
END
/
ALTER TABLE RL_EVENT_WNDW_CONFIG ADD COLUMN SCHEMA_NB INTEGER
/
CREATE TRIGGER RL_EVENT_WNDW_CONFIG_TR BEFORE INSERT ON RL_EVENT_WNDW_CONFIG WHEN NEW.SCHEMA_NB IS NULL
BEGIN
    SELECT RAISE(ABORT, 'this program is older than the schema: SCHEMA_NB is missing');
END
