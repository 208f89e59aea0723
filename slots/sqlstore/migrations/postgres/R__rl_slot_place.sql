-- The whole search for one event's slot in one call, with the same results as
-- the same search by single statements.
--
-- RL_SLOT_SCOUT returns the earliest window in [p_from, p_end) that has no row or counts
-- less than p_max; p_end or later if there is none. It jumps over runs of full windows. A row
-- of another epoch than p_epoch is as if it were not there.
CREATE OR REPLACE FUNCTION RL_SLOT_SCOUT(p_scope TEXT, p_size BIGINT, p_epoch BIGINT, p_max BIGINT, p_from BIGINT, p_end BIGINT)
RETURNS BIGINT LANGUAGE plpgsql AS $$
DECLARE
    c_epoch CONSTANT TIMESTAMPTZ := 'epoch';
    c_ms    CONSTANT INTERVAL := interval '1 millisecond';
    v_at    BIGINT := p_from;
    v_start TIMESTAMPTZ;
    v_run   TIMESTAMPTZ;
    v_rows  BIGINT;
    v_read  BIGINT := 100;
    w       RECORD;
BEGIN
    WHILE v_at < p_end LOOP
        v_start := c_epoch + v_at * c_ms;
        SELECT RUN_END_TS INTO v_run FROM RL_WNDW_FULL_RUN
         WHERE WNDW_SCOPE_NM = p_scope AND WNDW_SIZE_MS = p_size AND WNDW_MAX_EVENT_CT = p_max AND RUN_STRT_TS <= v_start
         ORDER BY RUN_STRT_TS DESC LIMIT 1;
        IF v_run > v_start THEN
            v_at := (extract(epoch FROM v_run) * 1000)::bigint;
            v_read := 100;
            CONTINUE;
        END IF;
        v_rows := 0;
        FOR w IN SELECT WNDW_STRT_TS, SLOT_CT FROM RL_WNDW_CT
                  WHERE WNDW_SCOPE_NM = p_scope AND WNDW_SIZE_MS = p_size AND EPOCH_CT = p_epoch
                    AND WNDW_STRT_TS >= v_start AND WNDW_STRT_TS < c_epoch + p_end * c_ms
                  ORDER BY WNDW_STRT_TS LIMIT v_read
        LOOP
            IF w.WNDW_STRT_TS <> c_epoch + v_at * c_ms OR w.SLOT_CT < p_max THEN
                RETURN v_at;
            END IF;
            v_at := v_at + p_size;
            v_rows := v_rows + 1;
        END LOOP;
        IF v_rows < v_read THEN
            RETURN v_at;
        END IF;
        v_read := LEAST(4 * v_read, 10000);
    END LOOP;
    RETURN p_end;
END
$$
/
-- RL_SLOT_LOCK locks the window's row, which it makes if there is none of the epoch, and
-- returns its count; NULL if that is not below p_max.
CREATE OR REPLACE FUNCTION RL_SLOT_LOCK(p_scope TEXT, p_size BIGINT, p_epoch BIGINT, p_start TIMESTAMPTZ, p_max BIGINT)
RETURNS BIGINT LANGUAGE plpgsql AS $$
DECLARE
    v_count BIGINT;
BEGIN
    FOR v_try IN 1..2 LOOP
        INSERT INTO RL_WNDW_CT (WNDW_SCOPE_NM, WNDW_SIZE_MS, WNDW_STRT_TS, SLOT_CT, CREAT_TS, EPOCH_CT)
        SELECT p_scope, p_size, p_start, (SELECT COUNT(*) FROM RL_EVENT_SLOT_DTL
                WHERE WNDW_SCOPE_NM = p_scope AND COMPUTED_SCHED_TS >= p_start
                  AND COMPUTED_SCHED_TS < p_start + p_size * interval '1 millisecond'), clock_timestamp(), p_epoch
         WHERE NOT EXISTS (SELECT 1 FROM RL_WNDW_CT
                WHERE WNDW_SCOPE_NM = p_scope AND WNDW_SIZE_MS = p_size AND WNDW_STRT_TS = p_start AND EPOCH_CT = p_epoch)
        ON CONFLICT (WNDW_SCOPE_NM, WNDW_SIZE_MS, WNDW_STRT_TS) DO UPDATE
           SET SLOT_CT = excluded.SLOT_CT, CREAT_TS = excluded.CREAT_TS, EPOCH_CT = excluded.EPOCH_CT
         WHERE RL_WNDW_CT.EPOCH_CT <> excluded.EPOCH_CT;
        SELECT SLOT_CT INTO v_count FROM RL_WNDW_CT
         WHERE WNDW_SCOPE_NM = p_scope AND WNDW_SIZE_MS = p_size AND WNDW_STRT_TS = p_start AND SLOT_CT < p_max
           FOR UPDATE;
        -- A purge may have dropped the row of a past window before it was locked.
        EXIT WHEN v_count IS NOT NULL OR EXISTS (SELECT 1 FROM RL_WNDW_CT
            WHERE WNDW_SCOPE_NM = p_scope AND WNDW_SIZE_MS = p_size AND WNDW_STRT_TS = p_start AND EPOCH_CT = p_epoch);
    END LOOP;
    RETURN v_count;
END
$$
/
-- RL_SLOT_PLACE: o_status is 0 if there is no window for the event, 1 if it got a slot,
-- 2 if it had one, 3 if the version of the config is superseded, 4 if windows that seemed to
-- have room had none, again and again.
CREATE OR REPLACE FUNCTION RL_SLOT_PLACE(
    p_scope TEXT, p_size BIGINT, p_config TEXT, p_max BIGINT, p_stratified BOOLEAN,
    p_first BIGINT, p_from BIGINT, p_direct BOOLEAN, p_end BIGINT,
    p_event TEXT, p_slot TEXT, p_requested TIMESTAMPTZ, p_elapsed BIGINT, p_first_max BIGINT, p_bits BIGINT,
    OUT o_status INTEGER, OUT o_slot TEXT, OUT o_scope TEXT, OUT o_size BIGINT, OUT o_requested TIMESTAMPTZ,
    OUT o_window TIMESTAMPTZ, OUT o_scheduled TIMESTAMPTZ, OUT o_config TEXT, OUT o_created TIMESTAMPTZ,
    OUT o_first_count BIGINT, OUT o_low BIGINT, OUT o_exhausted BOOLEAN, OUT o_windows BIGINT, OUT o_contended BIGINT)
LANGUAGE plpgsql AS $$
DECLARE
    c_epoch    CONSTANT TIMESTAMPTZ := 'epoch';
    c_ms       CONSTANT INTERVAL := interval '1 millisecond';
    v_window   BIGINT; -- the one that is tried
    v_count    BIGINT; -- of it, once it is locked
    v_elapsed  BIGINT := p_elapsed;
    v_capacity BIGINT := p_first_max;
    v_at       BIGINT := p_from;
    v_direct   BOOLEAN := p_direct;
    v_k        BIGINT;
    v_lo       BIGINT;
    v_hi       BIGINT;
    v_epoch    BIGINT;
BEGIN
    o_first_count := -1; o_low := p_from; o_exhausted := FALSE; o_windows := 0; o_contended := 0;

    -- The event may have a slot. 1: an earlier try took effect although its answer was lost.
    SELECT CASE WHEN WNDW_SLOT_ID = p_slot THEN 1 ELSE 2 END, WNDW_SLOT_ID, WNDW_SCOPE_NM, WNDW_SIZE_MS, REQ_TS, WNDW_STRT_TS, COMPUTED_SCHED_TS, RL_WNDW_CONFIG_ID, CREAT_TS
      INTO o_status, o_slot, o_scope, o_size, o_requested, o_window, o_scheduled, o_config, o_created
      FROM RL_EVENT_SLOT_DTL WHERE EVENT_ID = p_event;
    IF FOUND THEN
        RETURN;
    END IF;
    o_status := 0;

    -- The version of the config stays until this transaction ends.
    PERFORM set_config('lock_timeout', '1000', TRUE);
    PERFORM pg_advisory_xact_lock_shared(hashtextextended(p_config, 0));
    IF EXISTS (SELECT 1 FROM RL_EVENT_WNDW_CONFIG WHERE RL_WNDW_CONFIG_ID = p_config AND ACT_IN = 0) THEN
        o_status := 3;
        RETURN;
    END IF;
    v_epoch := COALESCE((SELECT EPOCH_CT FROM RL_WNDW_EPOCH WHERE WNDW_SCOPE_NM = p_scope AND WNDW_SIZE_MS = p_size), 0);

    -- The first window, where the event has a capacity of its own.
    IF p_first_max > 0 THEN
        v_window := p_first;
        o_windows := 1;
        v_count := RL_SLOT_LOCK(p_scope, p_size, v_epoch, c_epoch + v_window * c_ms, p_first_max);
        o_first_count := COALESCE(v_count + 1, p_first_max);
    END IF;

    -- The later windows: look, and lock the very window that was seen.
    IF v_count IS NULL THEN
        v_elapsed := 0;
        v_capacity := p_max;
        LOOP
            v_window := v_at;
            IF NOT v_direct THEN
                v_window := RL_SLOT_SCOUT(p_scope, p_size, v_epoch, p_max, v_at, p_end);
                o_low := GREATEST(o_low, LEAST(v_window, p_end));
            END IF;
            IF v_window >= p_end THEN
                o_exhausted := TRUE;
                RETURN;
            END IF;
            o_windows := o_windows + 1;
            v_count := RL_SLOT_LOCK(p_scope, p_size, v_epoch, c_epoch + v_window * c_ms, p_max);
            EXIT WHEN v_count IS NOT NULL;
            IF NOT v_direct THEN -- filled since it was seen, or its row was missing
                o_contended := o_contended + 1;
                IF o_contended >= 3 THEN
                    o_status := 4;
                    RETURN;
                END IF;
                v_at := v_window + p_size;
                o_low := v_at;
            END IF;
            v_direct := FALSE;
        END LOOP;
        IF v_count + 1 >= p_max THEN
            o_low := v_window + p_size;
        END IF;
    END IF;
    o_window := c_epoch + v_window * c_ms;

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
           (WNDW_SLOT_ID, EVENT_ID, WNDW_SCOPE_NM, WNDW_SIZE_MS, REQ_TS, WNDW_STRT_TS, COMPUTED_SCHED_TS, RL_WNDW_CONFIG_ID, CREAT_TS, SCHEMA_NB)
    VALUES (p_slot, p_event, p_scope, p_size, p_requested, o_window, o_window + v_lo * c_ms, p_config, clock_timestamp(), 4)
    ON CONFLICT DO NOTHING;
    IF FOUND THEN
        UPDATE RL_WNDW_CT SET SLOT_CT = SLOT_CT + 1
         WHERE WNDW_SCOPE_NM = p_scope AND WNDW_SIZE_MS = p_size AND WNDW_STRT_TS = o_window;
        o_status := 1; o_slot := p_slot; o_scope := p_scope; o_size := p_size; o_requested := p_requested;
        o_scheduled := o_window + v_lo * c_ms; o_config := p_config;
        RETURN;
    END IF;

    -- The event got its slot meanwhile. The window is as it was.
    o_first_count := -1; o_low := p_from;
    SELECT CASE WHEN WNDW_SLOT_ID = p_slot THEN 1 ELSE 2 END, WNDW_SLOT_ID, WNDW_SCOPE_NM, WNDW_SIZE_MS, REQ_TS, WNDW_STRT_TS, COMPUTED_SCHED_TS, RL_WNDW_CONFIG_ID, CREAT_TS
      INTO o_status, o_slot, o_scope, o_size, o_requested, o_window, o_scheduled, o_config, o_created
      FROM RL_EVENT_SLOT_DTL WHERE EVENT_ID = p_event;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'a slot of this id is there' USING ERRCODE = 'serialization_failure';
    END IF;
END
$$
