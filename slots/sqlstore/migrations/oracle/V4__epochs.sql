-- The epoch of a scope and a window size. A change that has windows counted anew adds to it:
-- rows of RL_WNDW_CT of earlier epochs count for nothing, and are counted again when their
-- window is claimed. Every statement may be run again.

CREATE TABLE RL_WNDW_EPOCH (
  WNDW_SCOPE_NM VARCHAR2(128) NOT NULL,
  WNDW_SIZE_MS  NUMBER(10)    NOT NULL,
  EPOCH_CT      NUMBER(19)    NOT NULL,
  CONSTRAINT RL_WNDW_EPOCH_PK PRIMARY KEY (WNDW_SCOPE_NM, WNDW_SIZE_MS)
)
/

ALTER TABLE RL_WNDW_CT ADD (EPOCH_CT NUMBER(19) DEFAULT 0 NOT NULL)
/

-- The version of the schema that the writer of a row knows. A program that knows no such
-- column cannot insert: it would not see epochs.
ALTER TABLE RL_EVENT_SLOT_DTL ADD (SCHEMA_NB NUMBER(5) DEFAULT 0 NOT NULL)
/

ALTER TABLE RL_EVENT_SLOT_DTL MODIFY (SCHEMA_NB DEFAULT NULL)
/

ALTER TABLE RL_EVENT_WNDW_CONFIG ADD (SCHEMA_NB NUMBER(5) DEFAULT 0 NOT NULL)
/

ALTER TABLE RL_EVENT_WNDW_CONFIG MODIFY (SCHEMA_NB DEFAULT NULL)
/
