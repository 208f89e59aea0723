-- Runs of full windows, which a search jumps over, two facts about the database, and a
-- table that is locked and never written: by those who claim in one mode, by those who
-- put configs in another. Every statement may be run again.

CREATE TABLE RL_WNDW_FULL_RUN (
  WNDW_SCOPE_NM     VARCHAR2(128) NOT NULL,
  WNDW_SIZE_MS      NUMBER(10)    NOT NULL,
  WNDW_MAX_EVENT_CT NUMBER(10)    NOT NULL,
  RUN_STRT_TS       TIMESTAMP(6)  NOT NULL,
  RUN_END_TS        TIMESTAMP(6)  NOT NULL,
  CONSTRAINT RL_WNDW_FULL_RUN_PK PRIMARY KEY (WNDW_SCOPE_NM, WNDW_SIZE_MS, WNDW_MAX_EVENT_CT, RUN_STRT_TS)
)
/

CREATE TABLE RL_SLOT_GATE (
  GATE_ID NUMBER(1) NOT NULL
)
/

-- How configs count that name no scope: 'config', 'shared', or not decided yet. Slots in
-- the scope of all that are still to come decide it.
INSERT INTO RL_SLOT_CTL (CTL_NM, GEN_CT, HOLDER_ID)
SELECT 'scope', 0, (SELECT MAX('shared') FROM RL_EVENT_SLOT_DTL
        WHERE WNDW_SCOPE_NM = '*' AND COMPUTED_SCHED_TS >= SYS_EXTRACT_UTC(SYSTIMESTAMP))
  FROM DUAL
 WHERE NOT EXISTS (SELECT 1 FROM RL_SLOT_CTL WHERE CTL_NM = 'scope')
/

-- Whether another program made the tables, whose users may read them.
INSERT INTO RL_SLOT_CTL (CTL_NM, GEN_CT)
SELECT 'adopted', 0 FROM DUAL
 WHERE NOT EXISTS (SELECT 1 FROM RL_SLOT_CTL WHERE CTL_NM = 'adopted')
   AND (EXISTS (SELECT 1 FROM RL_WNDW_CT WHERE WNDW_SCOPE_NM = '*' AND WNDW_SIZE_MS = 0)
     OR EXISTS (SELECT 1 FROM RL_EVENT_SLOT_DTL WHERE WNDW_SCOPE_NM = '*' AND WNDW_SIZE_MS = 0))
/
