-- One assignment in one call, and the five functions that it is written with. Statements end with a line that holds only a slash.
--
-- The package keeps to what both Oracle and MariaDB in its Oracle mode understand:
-- its tests run this very text there, with other bodies for the five functions.

CREATE OR REPLACE FUNCTION RL_NOW RETURN TIMESTAMP IS
BEGIN
  RETURN SYS_EXTRACT_UTC(SYSTIMESTAMP);
END RL_NOW;
/

CREATE OR REPLACE FUNCTION RL_TS(p_text IN VARCHAR2) RETURN TIMESTAMP IS
BEGIN
  RETURN TO_TIMESTAMP(p_text, 'YYYY-MM-DD HH24:MI:SS.FF6');
END RL_TS;
/

CREATE OR REPLACE FUNCTION RL_TXT(p_ts IN TIMESTAMP) RETURN VARCHAR2 IS
BEGIN
  RETURN TO_CHAR(p_ts, 'YYYY-MM-DD HH24:MI:SS.FF6');
END RL_TXT;
/

CREATE OR REPLACE FUNCTION RL_ADD_MS(p_ts IN TIMESTAMP, p_ms IN NUMBER) RETURN TIMESTAMP IS
BEGIN
  RETURN p_ts + NUMTODSINTERVAL(p_ms / 1000, 'SECOND');
END RL_ADD_MS;
/

-- Holds the version of a config until the transaction ends, so that it is not replaced,
-- and tells whether it is the active one: 1, or 0.
CREATE OR REPLACE FUNCTION RL_CONFIG_HELD(p_config_id IN VARCHAR2) RETURN NUMBER IS
  v_active RL_EVENT_WNDW_CONFIG.ACT_IN%TYPE;
BEGIN
  LOCK TABLE RL_SLOT_GATE IN ROW SHARE MODE;
  SELECT MAX(ACT_IN) INTO v_active FROM RL_EVENT_WNDW_CONFIG WHERE RL_WNDW_CONFIG_ID = p_config_id;
  RETURN NVL(v_active, 1);
END RL_CONFIG_HELD;
/

CREATE OR REPLACE PACKAGE RL_SLOT_API IS
  -- Places one event: the slot that it has, or a place in the first window with
  -- room. Times are text, 'YYYY-MM-DD HH24:MI:SS.FF6' in UTC; sizes are
  -- milliseconds; flags are 0 or 1. It ends the caller's transaction.
  --
  -- p_status: 0 no window for it, 1 it got a slot, 2 it had one, 3 the version of the
  -- config is superseded, 4 another session holds a window with room, or windows that
  -- seemed to have room had none, again and again. Numbers are never
  -- NULL. p_slot_* texts are, with status 0, 3 and 4, and p_slot_creat_ts of a slot made just now. The window of the requested time counts
  -- p_first_count or more, -1 if nothing was seen of it; all windows in [p_from, p_low)
  -- were seen to be full.
  PROCEDURE ASSIGN_SLOT(
    p_event_id      IN RL_EVENT_SLOT_DTL.EVENT_ID%TYPE,
    p_slot_id       IN RL_EVENT_SLOT_DTL.WNDW_SLOT_ID%TYPE,
    p_scope         IN RL_WNDW_CT.WNDW_SCOPE_NM%TYPE,
    p_size_ms       IN RL_WNDW_CT.WNDW_SIZE_MS%TYPE,
    p_config_id     IN RL_EVENT_SLOT_DTL.RL_WNDW_CONFIG_ID%TYPE,
    p_max           IN RL_WNDW_CT.SLOT_CT%TYPE,
    p_stratified    IN RL_WNDW_CT.SLOT_CT%TYPE,
    p_req           IN VARCHAR2,
    p_elapsed_ms    IN RL_WNDW_CT.WNDW_SIZE_MS%TYPE,
    p_first_max     IN RL_WNDW_CT.SLOT_CT%TYPE,
    p_bits          IN RL_WNDW_CT.SLOT_CT%TYPE,
    p_first         IN VARCHAR2,
    p_from          IN VARCHAR2,
    p_direct        IN RL_WNDW_CT.SLOT_CT%TYPE,
    p_end           IN VARCHAR2,
    p_status        OUT RL_WNDW_CT.SLOT_CT%TYPE,
    p_slot_slot_id  OUT RL_EVENT_SLOT_DTL.WNDW_SLOT_ID%TYPE,
    p_slot_scope    OUT RL_EVENT_SLOT_DTL.WNDW_SCOPE_NM%TYPE,
    p_slot_size_ms  OUT RL_EVENT_SLOT_DTL.WNDW_SIZE_MS%TYPE,
    p_slot_req      OUT VARCHAR2,
    p_slot_window   OUT VARCHAR2,
    p_slot_sched    OUT VARCHAR2,
    p_slot_config   OUT RL_EVENT_SLOT_DTL.RL_WNDW_CONFIG_ID%TYPE,
    p_slot_creat_ts OUT VARCHAR2,
    p_first_count   OUT RL_WNDW_CT.SLOT_CT%TYPE,
    p_low           OUT VARCHAR2,
    p_exhausted     OUT RL_WNDW_CT.SLOT_CT%TYPE,
    p_windows       OUT RL_WNDW_CT.SLOT_CT%TYPE,
    p_contended     OUT RL_WNDW_CT.SLOT_CT%TYPE);
END RL_SLOT_API;
/

CREATE OR REPLACE PACKAGE BODY RL_SLOT_API IS
  -- The slot of an event; its WNDW_SLOT_ID is NULL if it has none.
  PROCEDURE FIND_SLOT(
    p_event_id IN RL_EVENT_SLOT_DTL.EVENT_ID%TYPE,
    p_slot     OUT RL_EVENT_SLOT_DTL%ROWTYPE) IS
  BEGIN
    SELECT * INTO p_slot FROM RL_EVENT_SLOT_DTL WHERE EVENT_ID = p_event_id;
  EXCEPTION
    WHEN NO_DATA_FOUND THEN p_slot.WNDW_SLOT_ID := NULL;
  END FIND_SLOT;

  -- The epoch of a slot's scope and window size: rows of windows of others are as if they were not
  -- there.
  PROCEDURE EPOCH(
    p_slot  IN RL_EVENT_SLOT_DTL%ROWTYPE,
    p_epoch OUT RL_WNDW_CT.EPOCH_CT%TYPE) IS
  BEGIN
    SELECT NVL(MAX(EPOCH_CT), 0) INTO p_epoch FROM RL_WNDW_EPOCH
     WHERE WNDW_SCOPE_NM = p_slot.WNDW_SCOPE_NM AND WNDW_SIZE_MS = p_slot.WNDW_SIZE_MS;
  END EPOCH;

  -- Makes the row of a slot's window, unless it is there, and commits it, so that nobody waits
  -- for more than that. It counts what is scheduled inside it already, whatever the size of
  -- the windows that it was placed by; nobody changes the config of its series meanwhile.
  PROCEDURE MAKE_ROW(p_slot IN RL_EVENT_SLOT_DTL%ROWTYPE) IS
    v_rows  RL_WNDW_CT.SLOT_CT%TYPE;
    v_slots RL_WNDW_CT.SLOT_CT%TYPE;
    v_stop  RL_WNDW_CT.WNDW_STRT_TS%TYPE;
    v_now   RL_WNDW_CT.CREAT_TS%TYPE;
    v_epoch RL_WNDW_CT.EPOCH_CT%TYPE;
  BEGIN
    EPOCH(p_slot, v_epoch);
    SELECT COUNT(*) INTO v_rows FROM RL_WNDW_CT
     WHERE WNDW_SCOPE_NM = p_slot.WNDW_SCOPE_NM AND WNDW_SIZE_MS = p_slot.WNDW_SIZE_MS
       AND WNDW_STRT_TS = p_slot.WNDW_STRT_TS AND EPOCH_CT = v_epoch;
    IF v_rows = 0 THEN
      v_rows := RL_CONFIG_HELD(p_slot.RL_WNDW_CONFIG_ID);
      EPOCH(p_slot, v_epoch);
      v_stop := RL_ADD_MS(p_slot.WNDW_STRT_TS, p_slot.WNDW_SIZE_MS);
      v_now := RL_NOW();
      SELECT COUNT(*) INTO v_slots FROM RL_EVENT_SLOT_DTL
       WHERE WNDW_SCOPE_NM = p_slot.WNDW_SCOPE_NM AND COMPUTED_SCHED_TS >= p_slot.WNDW_STRT_TS AND COMPUTED_SCHED_TS < v_stop;
      UPDATE RL_WNDW_CT SET SLOT_CT = v_slots, CREAT_TS = v_now, EPOCH_CT = v_epoch
       WHERE WNDW_SCOPE_NM = p_slot.WNDW_SCOPE_NM AND WNDW_SIZE_MS = p_slot.WNDW_SIZE_MS
         AND WNDW_STRT_TS = p_slot.WNDW_STRT_TS AND EPOCH_CT <> v_epoch;
      IF SQL%ROWCOUNT = 0 THEN
        INSERT INTO RL_WNDW_CT (WNDW_SCOPE_NM, WNDW_SIZE_MS, WNDW_STRT_TS, SLOT_CT, CREAT_TS, EPOCH_CT)
        VALUES (p_slot.WNDW_SCOPE_NM, p_slot.WNDW_SIZE_MS, p_slot.WNDW_STRT_TS, v_slots, v_now, v_epoch);
      END IF;
      COMMIT;
    END IF;
  EXCEPTION
    WHEN DUP_VAL_ON_INDEX THEN ROLLBACK; -- another session was first
  END MAKE_ROW;

  -- Maps 31 random bits onto [p_lo, p_hi).
  PROCEDURE DRAW(
    p_bits   IN RL_WNDW_CT.SLOT_CT%TYPE,
    p_lo     IN RL_WNDW_CT.WNDW_SIZE_MS%TYPE,
    p_hi     IN RL_WNDW_CT.WNDW_SIZE_MS%TYPE,
    p_offset OUT RL_WNDW_CT.WNDW_SIZE_MS%TYPE) IS
    v_product NUMBER(19);
  BEGIN
    p_offset := p_lo;
    IF p_lo < p_hi THEN
      v_product := p_bits * (p_hi - p_lo);
      p_offset := p_lo + (v_product - MOD(v_product, 2147483648)) / 2147483648;
    END IF;
  END DRAW;

  -- The stretch of a window, of p_max equal ones, that the event after p_count
  -- others gets, of p_capacity that the window has for it.
  PROCEDURE STRATUM(
    p_count    IN RL_WNDW_CT.SLOT_CT%TYPE,
    p_capacity IN RL_WNDW_CT.SLOT_CT%TYPE,
    p_max      IN RL_WNDW_CT.SLOT_CT%TYPE,
    p_size_ms  IN RL_WNDW_CT.WNDW_SIZE_MS%TYPE,
    p_lo       IN OUT RL_WNDW_CT.WNDW_SIZE_MS%TYPE,
    p_hi       OUT RL_WNDW_CT.WNDW_SIZE_MS%TYPE) IS
    v_index NUMBER(19);
    v_low   NUMBER(19);
    v_high  NUMBER(19);
  BEGIN
    v_index := GREATEST(LEAST(p_max - p_capacity + p_count, p_max - 1), 0);
    v_low := v_index * p_size_ms;
    v_low := (v_low - MOD(v_low, p_max)) / p_max;
    v_high := (v_index + 1) * p_size_ms;
    v_high := (v_high - MOD(v_high, p_max)) / p_max;
    p_lo := GREATEST(p_lo, v_low);
    p_hi := LEAST(GREATEST(p_lo + 1, v_high), p_size_ms);
  END STRATUM;

  -- Locks a slot's window with room and counts the event in. p_status is 0 if the window
  -- is full; 1 if the event got its place; 2 if it has a slot already; 3 if the version of
  -- the config is superseded; 4 if another session holds the window. Either way the transaction is over. p_count is the count
  -- with the event, or NULL.
  PROCEDURE CLAIM(
    p_slot       IN OUT RL_EVENT_SLOT_DTL%ROWTYPE,
    p_max        IN RL_WNDW_CT.SLOT_CT%TYPE,
    p_stratified IN RL_WNDW_CT.SLOT_CT%TYPE,
    p_bits       IN RL_WNDW_CT.SLOT_CT%TYPE,
    p_capacity   IN RL_WNDW_CT.SLOT_CT%TYPE,
    p_elapsed_ms IN RL_WNDW_CT.WNDW_SIZE_MS%TYPE,
    p_status     OUT RL_WNDW_CT.SLOT_CT%TYPE,
    p_count      OUT RL_WNDW_CT.SLOT_CT%TYPE,
    p_windows    IN OUT RL_WNDW_CT.SLOT_CT%TYPE) IS
    v_lo     RL_WNDW_CT.WNDW_SIZE_MS%TYPE;
    v_hi     RL_WNDW_CT.WNDW_SIZE_MS%TYPE;
    v_offset RL_WNDW_CT.WNDW_SIZE_MS%TYPE;
    v_rows   RL_WNDW_CT.SLOT_CT%TYPE;
    v_now    RL_EVENT_SLOT_DTL.CREAT_TS%TYPE;
    v_epoch  RL_WNDW_CT.EPOCH_CT%TYPE;
  BEGIN
    p_windows := p_windows + 1;
    p_status := 0;
    p_count := NULL;
    MAKE_ROW(p_slot);
    IF RL_CONFIG_HELD(p_slot.RL_WNDW_CONFIG_ID) = 0 THEN
      p_status := 3;
    ELSE
      EPOCH(p_slot, v_epoch);
      BEGIN
        SELECT SLOT_CT INTO p_count FROM RL_WNDW_CT
         WHERE WNDW_SCOPE_NM = p_slot.WNDW_SCOPE_NM AND WNDW_SIZE_MS = p_slot.WNDW_SIZE_MS
           AND WNDW_STRT_TS = p_slot.WNDW_STRT_TS AND SLOT_CT < p_capacity AND EPOCH_CT = v_epoch
           FOR UPDATE SKIP LOCKED;
      EXCEPTION
        WHEN NO_DATA_FOUND THEN p_count := NULL;
      END;
      IF p_count IS NULL THEN -- full, held, or not there any more
        SELECT COUNT(*) INTO v_rows FROM RL_WNDW_CT
         WHERE WNDW_SCOPE_NM = p_slot.WNDW_SCOPE_NM AND WNDW_SIZE_MS = p_slot.WNDW_SIZE_MS
           AND WNDW_STRT_TS = p_slot.WNDW_STRT_TS AND SLOT_CT >= p_capacity AND EPOCH_CT = v_epoch;
        IF v_rows = 0 THEN
          p_status := 4;
        END IF;
      END IF;
    END IF;
    IF p_count IS NOT NULL THEN
      v_lo := p_elapsed_ms;
      v_hi := p_slot.WNDW_SIZE_MS;
      IF p_stratified = 1 THEN
        STRATUM(p_count, p_capacity, p_max, p_slot.WNDW_SIZE_MS, v_lo, v_hi);
      END IF;
      DRAW(p_bits, v_lo, v_hi, v_offset);
      p_slot.COMPUTED_SCHED_TS := RL_ADD_MS(p_slot.WNDW_STRT_TS, v_offset);
      v_now := RL_NOW();
      BEGIN
        INSERT INTO RL_EVENT_SLOT_DTL (WNDW_SLOT_ID, EVENT_ID, WNDW_SCOPE_NM, WNDW_SIZE_MS, REQ_TS, WNDW_STRT_TS,
               COMPUTED_SCHED_TS, RL_WNDW_CONFIG_ID, CREAT_TS, SCHEMA_NB)
        VALUES (p_slot.WNDW_SLOT_ID, p_slot.EVENT_ID, p_slot.WNDW_SCOPE_NM, p_slot.WNDW_SIZE_MS, p_slot.REQ_TS,
               p_slot.WNDW_STRT_TS, p_slot.COMPUTED_SCHED_TS, p_slot.RL_WNDW_CONFIG_ID, v_now, 4);
        UPDATE RL_WNDW_CT SET SLOT_CT = SLOT_CT + 1
         WHERE WNDW_SCOPE_NM = p_slot.WNDW_SCOPE_NM AND WNDW_SIZE_MS = p_slot.WNDW_SIZE_MS
           AND WNDW_STRT_TS = p_slot.WNDW_STRT_TS;
        COMMIT;
        p_status := 1;
        p_count := p_count + 1;
      EXCEPTION
        WHEN DUP_VAL_ON_INDEX THEN
          ROLLBACK;
          SELECT COUNT(*) INTO v_rows FROM RL_EVENT_SLOT_DTL WHERE EVENT_ID = p_slot.EVENT_ID;
          IF v_rows = 0 THEN
            RAISE; -- the slot's own key is there, or the event's slot cannot be seen yet
          END IF;
          p_status := 2;
          p_count := NULL;
      END;
    ELSE
      ROLLBACK;
    END IF;
  END CLAIM;

  -- The earliest window in [p_from, p_to) that has no row or counts less than p_max;
  -- p_to or later if there is none. It locks nothing, and jumps over runs of full windows.
  PROCEDURE SCOUT(
    p_slot    IN RL_EVENT_SLOT_DTL%ROWTYPE,
    p_from    IN RL_WNDW_CT.WNDW_STRT_TS%TYPE,
    p_to      IN RL_WNDW_CT.WNDW_STRT_TS%TYPE,
    p_max     IN RL_WNDW_CT.SLOT_CT%TYPE,
    p_window  OUT RL_WNDW_CT.WNDW_STRT_TS%TYPE) IS
    v_at   RL_WNDW_CT.WNDW_STRT_TS%TYPE;
    v_run  RL_WNDW_CT.WNDW_STRT_TS%TYPE;
    v_rows RL_WNDW_CT.SLOT_CT%TYPE;
    v_done NUMBER(1);
    v_epoch RL_WNDW_CT.EPOCH_CT%TYPE;
  BEGIN
    EPOCH(p_slot, v_epoch);
    v_at := p_from;
    v_done := 0;
    WHILE v_done = 0 AND v_at < p_to LOOP
      v_run := NULL;
      FOR v_noted IN (SELECT RUN_END_TS FROM RL_WNDW_FULL_RUN
                       WHERE WNDW_SCOPE_NM = p_slot.WNDW_SCOPE_NM AND WNDW_SIZE_MS = p_slot.WNDW_SIZE_MS
                         AND WNDW_MAX_EVENT_CT = p_max AND RUN_STRT_TS <= v_at
                       ORDER BY RUN_STRT_TS DESC FETCH FIRST 1 ROWS ONLY) LOOP
        v_run := v_noted.RUN_END_TS;
      END LOOP;
      IF v_run > v_at THEN
        v_at := v_run;
      ELSE
        v_rows := 0;
        FOR v_seen IN (SELECT WNDW_STRT_TS, SLOT_CT FROM RL_WNDW_CT
                        WHERE WNDW_SCOPE_NM = p_slot.WNDW_SCOPE_NM AND WNDW_SIZE_MS = p_slot.WNDW_SIZE_MS
                          AND EPOCH_CT = v_epoch AND WNDW_STRT_TS >= v_at AND WNDW_STRT_TS < p_to
                        ORDER BY WNDW_STRT_TS FETCH FIRST 500 ROWS ONLY) LOOP
          EXIT WHEN v_seen.WNDW_STRT_TS <> v_at OR v_seen.SLOT_CT < p_max;
          v_at := RL_ADD_MS(v_at, p_slot.WNDW_SIZE_MS);
          v_rows := v_rows + 1;
        END LOOP;
        IF v_rows < 500 THEN
          v_done := 1;
        END IF;
      END IF;
    END LOOP;
    p_window := v_at;
  END SCOUT;

  -- The windows after the first one, the earliest with room first. All windows before
  -- p_low were seen to be full.
  PROCEDURE TRY_LATER(
    p_slot       IN OUT RL_EVENT_SLOT_DTL%ROWTYPE,
    p_max        IN RL_WNDW_CT.SLOT_CT%TYPE,
    p_stratified IN RL_WNDW_CT.SLOT_CT%TYPE,
    p_bits       IN RL_WNDW_CT.SLOT_CT%TYPE,
    p_from       IN RL_WNDW_CT.WNDW_STRT_TS%TYPE,
    p_direct     IN RL_WNDW_CT.SLOT_CT%TYPE,
    p_end        IN RL_WNDW_CT.WNDW_STRT_TS%TYPE,
    p_low        IN OUT RL_WNDW_CT.WNDW_STRT_TS%TYPE,
    p_status     OUT RL_WNDW_CT.SLOT_CT%TYPE,
    p_exhausted  OUT RL_WNDW_CT.SLOT_CT%TYPE,
    p_windows    IN OUT RL_WNDW_CT.SLOT_CT%TYPE,
    p_contended  IN OUT RL_WNDW_CT.SLOT_CT%TYPE) IS
    v_at     RL_WNDW_CT.WNDW_STRT_TS%TYPE;
    v_window RL_WNDW_CT.WNDW_STRT_TS%TYPE;
    v_direct RL_WNDW_CT.SLOT_CT%TYPE;
    v_count  RL_WNDW_CT.SLOT_CT%TYPE;
  BEGIN
    p_status := 0;
    p_exhausted := 0;
    v_at := p_from;
    v_direct := p_direct;
    WHILE p_status = 0 AND p_exhausted = 0 LOOP
      v_window := v_at;
      IF v_direct = 0 THEN
        SCOUT(p_slot, v_at, p_end, p_max, v_window);
        v_window := LEAST(v_window, p_end);
        p_low := GREATEST(p_low, v_window);
      END IF;
      IF v_window >= p_end THEN
        p_exhausted := 1;
      ELSE
        p_slot.WNDW_STRT_TS := v_window;
        CLAIM(p_slot, p_max, p_stratified, p_bits, p_max, 0, p_status, v_count, p_windows);
        IF p_status = 0 AND v_direct = 0 THEN -- filled since it was scouted, or its row was missing
          p_contended := p_contended + 1;
          IF p_contended >= 3 THEN
            p_status := 4;
          END IF;
          v_at := RL_ADD_MS(v_window, p_slot.WNDW_SIZE_MS);
          p_low := v_at;
        ELSIF p_status = 1 AND v_count >= p_max THEN
          p_low := RL_ADD_MS(v_window, p_slot.WNDW_SIZE_MS);
        END IF;
        v_direct := 0;
      END IF;
    END LOOP;
  END TRY_LATER;

  PROCEDURE ASSIGN_SLOT(
    p_event_id      IN RL_EVENT_SLOT_DTL.EVENT_ID%TYPE,
    p_slot_id       IN RL_EVENT_SLOT_DTL.WNDW_SLOT_ID%TYPE,
    p_scope         IN RL_WNDW_CT.WNDW_SCOPE_NM%TYPE,
    p_size_ms       IN RL_WNDW_CT.WNDW_SIZE_MS%TYPE,
    p_config_id     IN RL_EVENT_SLOT_DTL.RL_WNDW_CONFIG_ID%TYPE,
    p_max           IN RL_WNDW_CT.SLOT_CT%TYPE,
    p_stratified    IN RL_WNDW_CT.SLOT_CT%TYPE,
    p_req           IN VARCHAR2,
    p_elapsed_ms    IN RL_WNDW_CT.WNDW_SIZE_MS%TYPE,
    p_first_max     IN RL_WNDW_CT.SLOT_CT%TYPE,
    p_bits          IN RL_WNDW_CT.SLOT_CT%TYPE,
    p_first         IN VARCHAR2,
    p_from          IN VARCHAR2,
    p_direct        IN RL_WNDW_CT.SLOT_CT%TYPE,
    p_end           IN VARCHAR2,
    p_status        OUT RL_WNDW_CT.SLOT_CT%TYPE,
    p_slot_slot_id  OUT RL_EVENT_SLOT_DTL.WNDW_SLOT_ID%TYPE,
    p_slot_scope    OUT RL_EVENT_SLOT_DTL.WNDW_SCOPE_NM%TYPE,
    p_slot_size_ms  OUT RL_EVENT_SLOT_DTL.WNDW_SIZE_MS%TYPE,
    p_slot_req      OUT VARCHAR2,
    p_slot_window   OUT VARCHAR2,
    p_slot_sched    OUT VARCHAR2,
    p_slot_config   OUT RL_EVENT_SLOT_DTL.RL_WNDW_CONFIG_ID%TYPE,
    p_slot_creat_ts OUT VARCHAR2,
    p_first_count   OUT RL_WNDW_CT.SLOT_CT%TYPE,
    p_low           OUT VARCHAR2,
    p_exhausted     OUT RL_WNDW_CT.SLOT_CT%TYPE,
    p_windows       OUT RL_WNDW_CT.SLOT_CT%TYPE,
    p_contended     OUT RL_WNDW_CT.SLOT_CT%TYPE) IS
    v_slot RL_EVENT_SLOT_DTL%ROWTYPE;
    v_have RL_EVENT_SLOT_DTL%ROWTYPE;
    v_from RL_WNDW_CT.WNDW_STRT_TS%TYPE;
    v_end  RL_WNDW_CT.WNDW_STRT_TS%TYPE;
    v_low  RL_WNDW_CT.WNDW_STRT_TS%TYPE;
  BEGIN
    v_from := RL_TS(p_from);
    v_end := RL_TS(p_end);
    v_low := v_from;
    p_first_count := -1;
    p_exhausted := 0;
    p_windows := 0;
    p_contended := 0;

    p_status := 2;
    FIND_SLOT(p_event_id, v_have);
    IF v_have.WNDW_SLOT_ID IS NULL THEN
      p_status := 0;
      v_slot.WNDW_SLOT_ID := p_slot_id;
      v_slot.EVENT_ID := p_event_id;
      v_slot.WNDW_SCOPE_NM := p_scope;
      v_slot.WNDW_SIZE_MS := p_size_ms;
      v_slot.REQ_TS := RL_TS(p_req);
      v_slot.RL_WNDW_CONFIG_ID := p_config_id;
      IF p_first_max > 0 THEN -- the event's own capacity in the window of its time
        v_slot.WNDW_STRT_TS := RL_TS(p_first);
        CLAIM(v_slot, p_max, p_stratified, p_bits, p_first_max, p_elapsed_ms, p_status, p_first_count, p_windows);
        p_first_count := NVL(p_first_count, p_first_max);
      END IF;
      IF p_status = 0 THEN
        TRY_LATER(v_slot, p_max, p_stratified, p_bits, v_from, p_direct, v_end, v_low, p_status, p_exhausted,
                  p_windows, p_contended);
      END IF;
      IF p_status = 2 THEN -- another session placed the event meanwhile
        FIND_SLOT(p_event_id, v_have);
        p_first_count := -1;
        v_low := v_from;
      ELSIF p_status = 1 THEN
        v_have := v_slot;
      END IF;
    END IF;
    IF p_status = 2 AND v_have.WNDW_SLOT_ID = p_slot_id THEN
      p_status := 1; -- an earlier try took effect although its answer was lost
    END IF;
    p_slot_slot_id := v_have.WNDW_SLOT_ID;
    p_slot_scope := v_have.WNDW_SCOPE_NM;
    p_slot_size_ms := NVL(v_have.WNDW_SIZE_MS, 0);
    p_slot_req := RL_TXT(v_have.REQ_TS);
    p_slot_window := RL_TXT(v_have.WNDW_STRT_TS);
    p_slot_sched := RL_TXT(v_have.COMPUTED_SCHED_TS);
    p_slot_config := v_have.RL_WNDW_CONFIG_ID;
    p_slot_creat_ts := RL_TXT(v_have.CREAT_TS);
    p_low := RL_TXT(v_low);
    COMMIT; -- of nothing: it ends the transaction that reading began
  EXCEPTION
    WHEN OTHERS THEN
      ROLLBACK;
      RAISE;
  END ASSIGN_SLOT;
END RL_SLOT_API;
/
