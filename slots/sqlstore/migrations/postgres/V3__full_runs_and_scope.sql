-- Runs of full windows, which a search jumps over, and two facts about the database.
CREATE TABLE RL_WNDW_FULL_RUN (
    WNDW_SCOPE_NM     VARCHAR(128) COLLATE "C" NOT NULL,
    WNDW_SIZE_MS      BIGINT NOT NULL,
    WNDW_MAX_EVENT_CT BIGINT NOT NULL, -- all windows of the run count as many or more
    RUN_STRT_TS       TIMESTAMPTZ NOT NULL,
    RUN_END_TS        TIMESTAMPTZ NOT NULL,
    CONSTRAINT RL_WNDW_FULL_RUN_PK PRIMARY KEY (WNDW_SCOPE_NM, WNDW_SIZE_MS, WNDW_MAX_EVENT_CT, RUN_STRT_TS)
)
/
-- How configs count that name no scope: 'config', 'shared', or not decided yet. Slots in
-- the scope of all that are still to come decide it.
INSERT INTO RL_SLOT_CTL (CTL_NM, GEN_CT, HOLDER_ID)
SELECT 'scope', 0, CASE WHEN EXISTS (SELECT 1 FROM RL_EVENT_SLOT_DTL
       WHERE WNDW_SCOPE_NM = '*' AND COMPUTED_SCHED_TS >= clock_timestamp()) THEN 'shared' END
/
-- Whether another program made the tables, whose users may read them.
INSERT INTO RL_SLOT_CTL (CTL_NM, GEN_CT)
SELECT 'adopted', 0
 WHERE EXISTS (SELECT 1 FROM RL_WNDW_CT WHERE WNDW_SCOPE_NM = '*' AND WNDW_SIZE_MS = 0)
    OR EXISTS (SELECT 1 FROM RL_EVENT_SLOT_DTL WHERE WNDW_SCOPE_NM = '*' AND WNDW_SIZE_MS = 0)
/
DROP PROCEDURE IF EXISTS RL_SLOT_ASSIGN
/
DROP FUNCTION IF EXISTS RL_SLOT_PROVISION
