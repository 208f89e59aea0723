-- The whole search for one event's slot in one call, with the same results as
-- the same search by single statements. To be called outside a transaction: it
-- commits what it provisions before it locks a window, so that nobody waits for
-- a chunk. Windows are locked by a range of one key: a row that is read by its whole
-- key stays locked even if its count is too high.
--
-- RL_SLOT_PROVISION makes the rows that are missing of n windows, in ascending order,
-- and adds their number to o_rows. A new row counts the slots that are scheduled
-- inside the window already. It makes 1,000 rows at a time, which is how deep the
-- servers recurse.
DROP PROCEDURE IF EXISTS RL_SLOT_PROVISION
/
CREATE PROCEDURE RL_SLOT_PROVISION(
    IN p_scope VARCHAR(128) CHARACTER SET utf8mb4 COLLATE ${COLLATION},
    IN p_size BIGINT, IN p_from DATETIME(6), IN p_n BIGINT, INOUT o_rows BIGINT)
    SQL SECURITY INVOKER
BEGIN
    DECLARE v_from DATETIME(6) DEFAULT p_from;
    DECLARE v_to DATETIME(6);
    DECLARE v_left BIGINT DEFAULT p_n;
    DECLARE v_n BIGINT;
    WHILE v_left > 0 DO
        SET v_n = LEAST(v_left, 1000);
        SET v_to = TIMESTAMPADD(MICROSECOND, v_n * p_size * 1000, v_from);
        INSERT IGNORE INTO RL_WNDW_CT (WNDW_SCOPE_NM, WNDW_SIZE_MS, WNDW_STRT_TS, SLOT_CT, CREAT_TS)
        WITH RECURSIVE W (N) AS (SELECT 0 UNION ALL SELECT N + 1 FROM W WHERE N + 1 < v_n),
        C (N, CT) AS (
            SELECT TIMESTAMPDIFF(MICROSECOND, v_from, COMPUTED_SCHED_TS) DIV (p_size * 1000), COUNT(*) FROM RL_EVENT_SLOT_DTL
             WHERE WNDW_SCOPE_NM = p_scope AND COMPUTED_SCHED_TS >= v_from AND COMPUTED_SCHED_TS < v_to GROUP BY 1)
        SELECT p_scope, p_size, TIMESTAMPADD(MICROSECOND, W.N * p_size * 1000, v_from), COALESCE(C.CT, 0), UTC_TIMESTAMP(6)
          FROM W LEFT JOIN C ON C.N = W.N
         WHERE NOT EXISTS (SELECT 1 FROM RL_WNDW_CT T
                WHERE T.WNDW_SCOPE_NM = p_scope AND T.WNDW_SIZE_MS = p_size
                  AND T.WNDW_STRT_TS = TIMESTAMPADD(MICROSECOND, W.N * p_size * 1000, v_from))
         ORDER BY W.N;
        SET o_rows = o_rows + ROW_COUNT();
        SET v_from = v_to;
        SET v_left = v_left - v_n;
    END WHILE;
    COMMIT;
END
/
DROP PROCEDURE IF EXISTS RL_SLOT_ASSIGN
/
CREATE PROCEDURE RL_SLOT_ASSIGN(
    IN p_scope VARCHAR(128) CHARACTER SET utf8mb4 COLLATE ${COLLATION}, IN p_size BIGINT,
    IN p_config VARCHAR(50) CHARACTER SET utf8mb4 COLLATE ${COLLATION}, IN p_max BIGINT, IN p_stratified BOOLEAN,
    IN p_first BIGINT, IN p_first_known BOOLEAN,
    IN p_base BIGINT, IN p_from BIGINT, IN p_direct BOOLEAN, IN p_end BIGINT,
    IN p_chunk BIGINT, IN p_chunks BIGINT, IN p_grid BIGINT, IN p_frontier BIGINT, IN p_wait BOOLEAN,
    IN p_event VARCHAR(50) CHARACTER SET utf8mb4 COLLATE ${COLLATION}, IN p_slot VARCHAR(50) CHARACTER SET utf8mb4 COLLATE ${COLLATION},
    IN p_requested DATETIME(6), IN p_elapsed BIGINT, IN p_first_max BIGINT, IN p_bits BIGINT)
    SQL SECURITY INVOKER
assign: BEGIN
    DECLARE c_epoch DATETIME(6) DEFAULT '1970-01-01 00:00:00';
    DECLARE v_chunk_ms BIGINT DEFAULT p_chunk * p_size;
    DECLARE v_start DATETIME(6); -- of the window that is tried
    DECLARE v_window BIGINT;     -- the same in milliseconds
    DECLARE v_count BIGINT;
    DECLARE v_locked BOOLEAN DEFAULT FALSE;
    DECLARE v_done BOOLEAN DEFAULT FALSE;
    DECLARE v_elapsed BIGINT DEFAULT 0;
    DECLARE v_capacity BIGINT DEFAULT p_max;
    DECLARE v_try INT DEFAULT 0;
    DECLARE v_end BIGINT;
    DECLARE v_limit BIGINT;
    DECLARE v_to BIGINT;
    DECLARE v_from BIGINT;
    DECLARE v_direct BOOLEAN;
    DECLARE v_passing BOOLEAN DEFAULT FALSE;
    DECLARE v_passed BIGINT;
    DECLARE v_retried BOOLEAN DEFAULT FALSE;
    DECLARE v_k BIGINT;
    DECLARE v_lo BIGINT;
    DECLARE v_hi BIGINT;
    DECLARE o_status INT DEFAULT 0;
    DECLARE o_slot, o_config VARCHAR(50) CHARACTER SET utf8mb4 COLLATE ${COLLATION};
    DECLARE o_scope VARCHAR(128) CHARACTER SET utf8mb4 COLLATE ${COLLATION};
    DECLARE o_size BIGINT;
    DECLARE o_requested, o_window, o_scheduled, o_created DATETIME(6);
    DECLARE o_first_count BIGINT DEFAULT -1;
    DECLARE o_low BIGINT DEFAULT p_from;
    DECLARE o_frontier BIGINT DEFAULT p_frontier;
    DECLARE o_held, o_exhausted BOOLEAN DEFAULT FALSE;
    DECLARE o_windows, o_contended, o_provisioned BIGINT DEFAULT 0;
    DECLARE EXIT HANDLER FOR SQLEXCEPTION
    BEGIN
        ROLLBACK;
        RESIGNAL;
    END;

    -- At the default level statements would not see what others committed since.
    SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED;

    work: BEGIN
        -- The event may have a slot.
        SELECT IF(WNDW_SLOT_ID = p_slot, 1, 2), WNDW_SLOT_ID, WNDW_SCOPE_NM, WNDW_SIZE_MS, REQ_TS, WNDW_STRT_TS, COMPUTED_SCHED_TS, RL_WNDW_CONFIG_ID, CREAT_TS
          INTO o_status, o_slot, o_scope, o_size, o_requested, o_window, o_scheduled, o_config, o_created
          FROM RL_EVENT_SLOT_DTL WHERE EVENT_ID = p_event;
        IF o_status > 0 THEN -- 1: an earlier try took effect although its answer was lost
            LEAVE work;
        END IF;

        -- The first window, where the event has a capacity of its own.
        IF p_first_max > 0 THEN
            SET v_window = p_first;
            SET v_start = TIMESTAMPADD(MICROSECOND, p_first * 1000, c_epoch);
            SET v_elapsed = p_elapsed;
            SET v_capacity = p_first_max;
            IF NOT p_first_known THEN
                CALL RL_SLOT_PROVISION(p_scope, p_size, v_start, 1, o_provisioned);
            END IF;
            first: LOOP
                SET o_windows = o_windows + 1;
                START TRANSACTION;
                SET v_count = NULL;
                SELECT SLOT_CT INTO v_count FROM RL_WNDW_CT
                 WHERE WNDW_SCOPE_NM = p_scope AND WNDW_SIZE_MS = p_size AND WNDW_STRT_TS >= v_start AND WNDW_STRT_TS <= v_start AND SLOT_CT < p_first_max
                   FOR UPDATE SKIP LOCKED;
                IF v_count IS NOT NULL THEN
                    SET v_locked = TRUE;
                    LEAVE first;
                END IF;
                ROLLBACK;
                SELECT SLOT_CT INTO v_count FROM RL_WNDW_CT
                 WHERE WNDW_SCOPE_NM = p_scope AND WNDW_SIZE_MS = p_size AND WNDW_STRT_TS = v_start;
                IF v_count IS NOT NULL THEN
                    SET o_first_count = v_count;
                    IF v_count < p_first_max THEN -- held by another
                        SET o_contended = o_contended + 1;
                        SET o_held = p_wait;
                        IF p_wait THEN
                            LEAVE work;
                        END IF;
                    END IF;
                    LEAVE first;
                END IF;
                IF v_try > 0 THEN
                    SIGNAL SQLSTATE '40001' SET MYSQL_ERRNO = 1213, MESSAGE_TEXT = 'the row of the first window is gone again';
                END IF;
                SET v_try = v_try + 1;
                CALL RL_SLOT_PROVISION(p_scope, p_size, v_start, 1, o_provisioned);
            END LOOP;
        END IF;

        -- The later windows: look, and lock the very window that was seen.
        IF v_locked THEN
            SET o_first_count = v_count + 1;
        ELSE
            SET v_elapsed = 0;
            SET v_capacity = p_max;
            SET v_end = p_frontier;
            IF v_end = 0 THEN
                SELECT COALESCE(TIMESTAMPDIFF(MICROSECOND, c_epoch, MAX(WNDW_END_TS)) DIV 1000, p_grid) INTO v_end FROM RL_WNDW_FRONTIER_TRK
                 WHERE WNDW_SCOPE_NM = p_scope AND WNDW_SIZE_MS = p_size AND REQ_TS = TIMESTAMPADD(MICROSECOND, p_grid * 1000, c_epoch);
            END IF;
            SET o_frontier = IF(v_end > p_grid, v_end, 0);
            SET v_limit = LEAST(GREATEST(p_base + v_chunk_ms, v_end) + p_chunks * v_chunk_ms, p_end);
            SET v_from = p_from;
            search: LOOP
                SET v_to = LEAST(v_end, v_limit);
                SET v_direct = p_direct AND v_from = p_from AND NOT v_retried;
                scan: WHILE v_from < v_to DO
                    IF v_direct THEN
                        SET v_window = v_from;
                        SET v_start = TIMESTAMPADD(MICROSECOND, v_window * 1000, c_epoch);
                    ELSE
                        SET v_start = NULL;
                        SELECT WNDW_STRT_TS INTO v_start FROM RL_WNDW_CT
                         WHERE WNDW_SCOPE_NM = p_scope AND WNDW_SIZE_MS = p_size AND SLOT_CT < p_max
                           AND WNDW_STRT_TS >= TIMESTAMPADD(MICROSECOND, v_from * 1000, c_epoch)
                           AND WNDW_STRT_TS < TIMESTAMPADD(MICROSECOND, v_to * 1000, c_epoch)
                         ORDER BY WNDW_STRT_TS LIMIT 1;
                        SET v_window = COALESCE(TIMESTAMPDIFF(MICROSECOND, c_epoch, v_start) DIV 1000, v_to);
                        IF NOT v_passing AND NOT v_retried THEN
                            SET o_low = GREATEST(o_low, v_window);
                        END IF;
                        IF v_start IS NULL THEN
                            SET v_from = v_to;
                            LEAVE scan;
                        END IF;
                    END IF;
                    SET o_windows = o_windows + 1;
                    START TRANSACTION;
                    SET v_count = NULL;
                    SELECT SLOT_CT INTO v_count FROM RL_WNDW_CT
                     WHERE WNDW_SCOPE_NM = p_scope AND WNDW_SIZE_MS = p_size AND WNDW_STRT_TS >= v_start AND WNDW_STRT_TS <= v_start AND SLOT_CT < p_max
                       FOR UPDATE SKIP LOCKED;
                    IF v_count IS NOT NULL THEN
                        SET v_locked = TRUE;
                        LEAVE search;
                    END IF;
                    ROLLBACK;
                    IF NOT v_direct THEN -- held, or filled since it was seen
                        SET o_contended = o_contended + 1;
                        IF p_wait THEN
                            SET o_held = TRUE;
                            LEAVE work;
                        END IF;
                        IF NOT v_passing THEN
                            SET v_passing = TRUE;
                            SET v_passed = v_window;
                        END IF;
                        SET v_from = v_window + p_size;
                    END IF;
                    SET v_direct = FALSE;
                END WHILE;
                IF v_passing AND NOT v_retried THEN -- whoever held them may be done
                    SET v_from = v_passed;
                    SET v_passing = FALSE;
                    SET v_retried = TRUE;
                ELSEIF v_end >= v_limit THEN
                    SET o_exhausted = TRUE;
                    LEAVE work;
                ELSE
                    SET v_end = GREATEST(v_end, p_grid);
                    CALL RL_SLOT_PROVISION(p_scope, p_size, TIMESTAMPADD(MICROSECOND, v_end * 1000, c_epoch), p_chunk, o_provisioned);
                    SET v_end = v_end + v_chunk_ms;
                    SET o_frontier = v_end;
                    INSERT IGNORE INTO RL_WNDW_FRONTIER_TRK (WNDW_SCOPE_NM, WNDW_SIZE_MS, REQ_TS, WNDW_END_TS, CREAT_TS)
                    VALUES (p_scope, p_size, TIMESTAMPADD(MICROSECOND, p_grid * 1000, c_epoch),
                            TIMESTAMPADD(MICROSECOND, v_end * 1000, c_epoch), UTC_TIMESTAMP(6));
                    COMMIT;
                END IF;
            END LOOP;
            IF v_count + 1 >= p_max AND NOT v_passing AND NOT v_retried THEN
                SET o_low = GREATEST(o_low, v_window + p_size);
            END IF;
        END IF;

        -- The place inside the window.
        SET v_lo = v_elapsed;
        SET v_hi = p_size;
        IF p_stratified THEN
            SET v_k = LEAST(GREATEST(p_max - v_capacity + v_count, 0), p_max - 1);
            SET v_lo = GREATEST(v_elapsed, v_k * p_size DIV p_max);
            SET v_hi = LEAST(GREATEST(v_lo + 1, (v_k + 1) * p_size DIV p_max), p_size);
        END IF;
        IF v_lo < v_hi THEN
            SET v_lo = v_lo + (p_bits MOD 2147483648) * (v_hi - v_lo) DIV 2147483648;
        END IF;
        SET o_scheduled = TIMESTAMPADD(MICROSECOND, v_lo * 1000, v_start);

        claim: BEGIN
            DECLARE EXIT HANDLER FOR 1062 ROLLBACK;
            INSERT INTO RL_EVENT_SLOT_DTL
                   (WNDW_SLOT_ID, EVENT_ID, WNDW_SCOPE_NM, WNDW_SIZE_MS, REQ_TS, WNDW_STRT_TS, COMPUTED_SCHED_TS, RL_WNDW_CONFIG_ID, CREAT_TS)
            VALUES (p_slot, p_event, p_scope, p_size, p_requested, v_start, o_scheduled, p_config, UTC_TIMESTAMP(6));
            UPDATE RL_WNDW_CT SET SLOT_CT = SLOT_CT + 1
             WHERE WNDW_SCOPE_NM = p_scope AND WNDW_SIZE_MS = p_size AND WNDW_STRT_TS = v_start;
            COMMIT;
            SET v_done = TRUE;
        END;
        IF v_done THEN
            SET o_status = 1, o_slot = p_slot, o_scope = p_scope, o_size = p_size, o_requested = p_requested,
                o_window = v_start, o_config = p_config;
            LEAVE work;
        END IF;

        -- The event got its slot meanwhile. The window is as it was. A row that is in
        -- the way may be not to be seen yet: while its transaction is just ending.
        SELECT IF(WNDW_SLOT_ID = p_slot, 1, 2), WNDW_SLOT_ID, WNDW_SCOPE_NM, WNDW_SIZE_MS, REQ_TS, WNDW_STRT_TS, COMPUTED_SCHED_TS, RL_WNDW_CONFIG_ID, CREAT_TS
          INTO o_status, o_slot, o_scope, o_size, o_requested, o_window, o_scheduled, o_config, o_created
          FROM RL_EVENT_SLOT_DTL WHERE EVENT_ID = p_event;
        IF o_status = 0 THEN
            SIGNAL SQLSTATE '40001' SET MYSQL_ERRNO = 1213, MESSAGE_TEXT = 'a slot of this event or this id is there, but cannot be seen';
        END IF;
    END;

    SELECT o_status, o_slot, o_scope, o_size, o_requested, o_window, o_scheduled, o_config, o_created,
           o_first_count, o_low, o_frontier, o_held, o_exhausted, o_windows, o_contended, o_provisioned;
END
