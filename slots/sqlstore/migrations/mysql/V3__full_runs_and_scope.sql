-- Runs of full windows, which a search jumps over, and two facts about the database.
CREATE TABLE IF NOT EXISTS RL_WNDW_FULL_RUN (
    WNDW_SCOPE_NM     VARCHAR(128) NOT NULL,
    WNDW_SIZE_MS      BIGINT       NOT NULL,
    WNDW_MAX_EVENT_CT BIGINT       NOT NULL, -- all windows of the run count as many or more
    RUN_STRT_TS       DATETIME(6)  NOT NULL,
    RUN_END_TS        DATETIME(6)  NOT NULL,
    PRIMARY KEY (WNDW_SCOPE_NM, WNDW_SIZE_MS, WNDW_MAX_EVENT_CT, RUN_STRT_TS)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE ${COLLATION}
/
-- How configs count that name no scope: 'config', 'shared', or not decided yet. Slots in
-- the scope of all that are still to come decide it.
INSERT IGNORE INTO RL_SLOT_CTL (CTL_NM, GEN_CT, HOLDER_ID)
SELECT 'scope', 0, CASE WHEN EXISTS (SELECT 1 FROM RL_EVENT_SLOT_DTL
       WHERE WNDW_SCOPE_NM = '*' AND COMPUTED_SCHED_TS >= UTC_TIMESTAMP(6)) THEN 'shared' END
/
-- Whether another program made the tables, whose users may read them.
INSERT IGNORE INTO RL_SLOT_CTL (CTL_NM, GEN_CT)
SELECT 'adopted', 0 FROM DUAL
 WHERE EXISTS (SELECT 1 FROM RL_WNDW_CT WHERE WNDW_SCOPE_NM = '*' AND WNDW_SIZE_MS = 0)
    OR EXISTS (SELECT 1 FROM RL_EVENT_SLOT_DTL WHERE WNDW_SCOPE_NM = '*' AND WNDW_SIZE_MS = 0)
/
DROP PROCEDURE IF EXISTS RL_SLOT_ASSIGN
/
DROP PROCEDURE IF EXISTS RL_SLOT_PROVISION
