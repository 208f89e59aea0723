-- The whole search for one event's slot in one call, with the same results as
-- the same search by single statements. To be called outside a transaction: it
-- commits what it provisions before it locks a window, so that nobody waits for
-- a chunk.
--
-- RL_SLOT_PROVISION makes the rows that are missing of n windows, in ascending order,
-- and returns how many it made. A new row counts the slots that are scheduled
-- inside the window already.
CREATE OR REPLACE FUNCTION RL_SLOT_PROVISION(p_scope TEXT, p_size BIGINT, p_from TIMESTAMPTZ, p_n BIGINT)
RETURNS BIGINT LANGUAGE plpgsql AS $$
DECLARE
    v_step INTERVAL := p_size * interval '1 millisecond';
    v_rows BIGINT;
BEGIN
    WITH C AS (
        SELECT (extract(epoch FROM COMPUTED_SCHED_TS - p_from) * 1000000)::bigint / (p_size * 1000) AS N, COUNT(*) AS CT
          FROM RL_EVENT_SLOT_DTL
         WHERE WNDW_SCOPE_NM = p_scope AND COMPUTED_SCHED_TS >= p_from AND COMPUTED_SCHED_TS < p_from + p_n * v_step
         GROUP BY 1),
    W AS (SELECT N, p_from + N * v_step AS STRT FROM generate_series(0, p_n - 1) AS N)
    INSERT INTO RL_WNDW_CT (WNDW_SCOPE_NM, WNDW_SIZE_MS, WNDW_STRT_TS, SLOT_CT, CREAT_TS)
    SELECT p_scope, p_size, W.STRT, COALESCE(C.CT, 0), clock_timestamp()
      FROM W LEFT JOIN C ON C.N = W.N
     WHERE NOT EXISTS (SELECT 1 FROM RL_WNDW_CT T
            WHERE T.WNDW_SCOPE_NM = p_scope AND T.WNDW_SIZE_MS = p_size AND T.WNDW_STRT_TS = W.STRT
              AND T.WNDW_STRT_TS >= p_from AND T.WNDW_STRT_TS < p_from + p_n * v_step)
     ORDER BY W.STRT
    ON CONFLICT DO NOTHING;
    GET DIAGNOSTICS v_rows = ROW_COUNT;
    RETURN v_rows;
END
$$
/
CREATE OR REPLACE PROCEDURE RL_SLOT_ASSIGN(
    p_scope TEXT, p_size BIGINT, p_config TEXT, p_max BIGINT, p_stratified BOOLEAN,
    p_first BIGINT, p_first_known BOOLEAN,
    p_base BIGINT, p_from BIGINT, p_direct BOOLEAN, p_end BIGINT,
    p_chunk BIGINT, p_chunks BIGINT, p_grid BIGINT, p_frontier BIGINT, p_wait BOOLEAN,
    p_event TEXT, p_slot TEXT, p_requested TIMESTAMPTZ, p_elapsed BIGINT, p_first_max BIGINT, p_bits BIGINT,
    INOUT o_status INTEGER, INOUT o_slot TEXT, INOUT o_scope TEXT, INOUT o_size BIGINT, INOUT o_requested TIMESTAMPTZ,
    INOUT o_window TIMESTAMPTZ, INOUT o_scheduled TIMESTAMPTZ, INOUT o_config TEXT, INOUT o_created TIMESTAMPTZ,
    INOUT o_first_count BIGINT, INOUT o_low BIGINT, INOUT o_frontier BIGINT,
    INOUT o_held BOOLEAN, INOUT o_exhausted BOOLEAN,
    INOUT o_windows BIGINT, INOUT o_contended BIGINT, INOUT o_provisioned BIGINT)
LANGUAGE plpgsql AS $$
DECLARE
    c_epoch    CONSTANT TIMESTAMPTZ := 'epoch';
    c_ms       CONSTANT INTERVAL := interval '1 millisecond';
    v_chunk_ms BIGINT := p_chunk * p_size;
    v_start    TIMESTAMPTZ; -- of the window that is tried
    v_window   BIGINT;      -- the same in milliseconds
    v_count    BIGINT;
    v_locked   BOOLEAN := FALSE;
    v_elapsed  BIGINT := 0;
    v_capacity BIGINT := p_max;
    v_try      INTEGER := 0;
    v_end      BIGINT;
    v_limit    BIGINT;
    v_to       BIGINT;
    v_from     BIGINT;
    v_direct   BOOLEAN;
    v_passing  BOOLEAN := FALSE;
    v_passed   BIGINT;
    v_retried  BOOLEAN := FALSE;
    v_k        BIGINT;
    v_lo       BIGINT;
    v_hi       BIGINT;
BEGIN
    o_first_count := -1; o_low := p_from; o_frontier := p_frontier; o_held := FALSE; o_exhausted := FALSE;
    o_windows := 0; o_contended := 0; o_provisioned := 0; o_status := 0;

    -- The event may have a slot.
    SELECT 2, WNDW_SLOT_ID, WNDW_SCOPE_NM, WNDW_SIZE_MS, REQ_TS, WNDW_STRT_TS, COMPUTED_SCHED_TS, RL_WNDW_CONFIG_ID, CREAT_TS
      INTO o_status, o_slot, o_scope, o_size, o_requested, o_window, o_scheduled, o_config, o_created
      FROM RL_EVENT_SLOT_DTL WHERE EVENT_ID = p_event;
    IF FOUND THEN
        IF o_slot = p_slot THEN
            o_status := 1; -- an earlier try took effect although its answer was lost
        END IF;
        RETURN;
    END IF;
    o_status := 0;

    -- The first window, where the event has a capacity of its own.
    IF p_first_max > 0 THEN
        v_window := p_first;
        v_start := c_epoch + p_first * c_ms;
        v_elapsed := p_elapsed;
        v_capacity := p_first_max;
        IF NOT p_first_known THEN
            o_provisioned := o_provisioned + RL_SLOT_PROVISION(p_scope, p_size, v_start, 1);
            COMMIT;
        END IF;
        LOOP
            o_windows := o_windows + 1;
            SELECT SLOT_CT INTO v_count FROM RL_WNDW_CT
             WHERE WNDW_SCOPE_NM = p_scope AND WNDW_SIZE_MS = p_size AND WNDW_STRT_TS = v_start AND SLOT_CT < p_first_max
               FOR UPDATE SKIP LOCKED;
            v_locked := FOUND;
            EXIT WHEN v_locked;
            SELECT SLOT_CT INTO v_count FROM RL_WNDW_CT
             WHERE WNDW_SCOPE_NM = p_scope AND WNDW_SIZE_MS = p_size AND WNDW_STRT_TS = v_start;
            IF FOUND THEN
                o_first_count := v_count;
                IF v_count < p_first_max THEN -- held by another
                    o_contended := o_contended + 1;
                    o_held := p_wait;
                    IF p_wait THEN
                        RETURN;
                    END IF;
                END IF;
                EXIT;
            END IF;
            IF v_try > 0 THEN
                RAISE EXCEPTION 'the row of the first window is gone again' USING ERRCODE = 'serialization_failure';
            END IF;
            v_try := v_try + 1;
            o_provisioned := o_provisioned + RL_SLOT_PROVISION(p_scope, p_size, v_start, 1);
            COMMIT;
        END LOOP;
    END IF;

    -- The later windows: look, and lock the very window that was seen.
    IF NOT v_locked THEN
        v_elapsed := 0;
        v_capacity := p_max;
        v_end := p_frontier;
        IF v_end = 0 THEN
            SELECT COALESCE((extract(epoch FROM MAX(WNDW_END_TS)) * 1000)::bigint, p_grid) INTO v_end FROM RL_WNDW_FRONTIER_TRK
             WHERE WNDW_SCOPE_NM = p_scope AND WNDW_SIZE_MS = p_size AND REQ_TS = c_epoch + p_grid * c_ms;
        END IF;
        o_frontier := CASE WHEN v_end > p_grid THEN v_end ELSE 0 END;
        v_limit := LEAST(GREATEST(p_base + v_chunk_ms, v_end) + p_chunks * v_chunk_ms, p_end);
        v_from := p_from;
        <<search>>
        LOOP
            v_to := LEAST(v_end, v_limit);
            v_direct := p_direct AND v_from = p_from AND NOT v_retried;
            WHILE v_from < v_to LOOP
                IF v_direct THEN
                    v_window := v_from;
                    v_start := c_epoch + v_window * c_ms;
                ELSE
                    SELECT WNDW_STRT_TS INTO v_start FROM RL_WNDW_CT
                     WHERE WNDW_SCOPE_NM = p_scope AND WNDW_SIZE_MS = p_size AND SLOT_CT < p_max
                       AND WNDW_STRT_TS >= c_epoch + v_from * c_ms AND WNDW_STRT_TS < c_epoch + v_to * c_ms
                     ORDER BY WNDW_SCOPE_NM, WNDW_SIZE_MS, WNDW_STRT_TS LIMIT 1;
                    v_window := v_to;
                    IF FOUND THEN
                        v_window := (extract(epoch FROM v_start) * 1000)::bigint;
                    END IF;
                    IF NOT v_passing AND NOT v_retried THEN
                        o_low := GREATEST(o_low, v_window);
                    END IF;
                    IF v_window = v_to THEN
                        v_from := v_to;
                        EXIT;
                    END IF;
                END IF;
                o_windows := o_windows + 1;
                SELECT SLOT_CT INTO v_count FROM RL_WNDW_CT
                 WHERE WNDW_SCOPE_NM = p_scope AND WNDW_SIZE_MS = p_size AND WNDW_STRT_TS = v_start AND SLOT_CT < p_max
                   FOR UPDATE SKIP LOCKED;
                IF FOUND THEN
                    v_locked := TRUE;
                    EXIT search;
                ELSIF NOT v_direct THEN -- held, or filled since it was seen
                    o_contended := o_contended + 1;
                    IF p_wait THEN
                        o_held := TRUE;
                        RETURN;
                    END IF;
                    IF NOT v_passing THEN
                        v_passing := TRUE;
                        v_passed := v_window;
                    END IF;
                    v_from := v_window + p_size;
                END IF;
                v_direct := FALSE;
            END LOOP;
            IF v_passing AND NOT v_retried THEN -- whoever held them may be done
                v_from := v_passed;
                v_passing := FALSE;
                v_retried := TRUE;
            ELSIF v_end >= v_limit THEN
                o_exhausted := TRUE;
                RETURN;
            ELSE
                v_end := GREATEST(v_end, p_grid);
                o_provisioned := o_provisioned + RL_SLOT_PROVISION(p_scope, p_size, c_epoch + v_end * c_ms, p_chunk);
                v_end := v_end + v_chunk_ms;
                o_frontier := v_end;
                INSERT INTO RL_WNDW_FRONTIER_TRK (WNDW_SCOPE_NM, WNDW_SIZE_MS, REQ_TS, WNDW_END_TS, CREAT_TS)
                VALUES (p_scope, p_size, c_epoch + p_grid * c_ms, c_epoch + v_end * c_ms, clock_timestamp())
                ON CONFLICT DO NOTHING;
                COMMIT;
            END IF;
        END LOOP;
        IF v_count + 1 >= p_max AND NOT v_passing AND NOT v_retried THEN
            o_low := GREATEST(o_low, v_window + p_size);
        END IF;
    ELSE
        o_first_count := v_count + 1;
    END IF;

    -- The place inside the window.
    v_lo := v_elapsed;
    v_hi := p_size;
    IF p_stratified THEN
        v_k := LEAST(GREATEST(p_max - v_capacity + v_count, 0), p_max - 1);
        v_lo := GREATEST(v_elapsed, v_k * p_size / p_max);
        v_hi := LEAST(GREATEST(v_lo + 1, (v_k + 1) * p_size / p_max), p_size);
    END IF;
    IF v_lo < v_hi THEN
        v_lo := v_lo + (((p_bits & 2147483647) * (v_hi - v_lo)) >> 31);
    END IF;

    INSERT INTO RL_EVENT_SLOT_DTL
           (WNDW_SLOT_ID, EVENT_ID, WNDW_SCOPE_NM, WNDW_SIZE_MS, REQ_TS, WNDW_STRT_TS, COMPUTED_SCHED_TS, RL_WNDW_CONFIG_ID, CREAT_TS)
    VALUES (p_slot, p_event, p_scope, p_size, p_requested, v_start, v_start + v_lo * c_ms, p_config, clock_timestamp())
    ON CONFLICT DO NOTHING;
    IF FOUND THEN
        UPDATE RL_WNDW_CT SET SLOT_CT = SLOT_CT + 1
         WHERE WNDW_SCOPE_NM = p_scope AND WNDW_SIZE_MS = p_size AND WNDW_STRT_TS = v_start;
        o_status := 1; o_slot := p_slot; o_scope := p_scope; o_size := p_size; o_requested := p_requested;
        o_window := v_start; o_scheduled := v_start + v_lo * c_ms; o_config := p_config; o_created := NULL;
        RETURN;
    END IF;

    -- The event got its slot meanwhile. The window is as it was.
    SELECT CASE WHEN WNDW_SLOT_ID = p_slot THEN 1 ELSE 2 END, WNDW_SLOT_ID, WNDW_SCOPE_NM, WNDW_SIZE_MS, REQ_TS, WNDW_STRT_TS, COMPUTED_SCHED_TS, RL_WNDW_CONFIG_ID, CREAT_TS
      INTO o_status, o_slot, o_scope, o_size, o_requested, o_window, o_scheduled, o_config, o_created
      FROM RL_EVENT_SLOT_DTL WHERE EVENT_ID = p_event;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'a slot of this id is there' USING ERRCODE = 'serialization_failure';
    END IF;
END
$$
