-- One assignment in one call, and the four functions of time that it is written
-- with. Statements end with a line that holds only a slash.
--
-- The package keeps to what both Oracle and MariaDB in its Oracle mode understand:
-- its tests run this very text there, with other bodies for the four functions.

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

CREATE OR REPLACE PACKAGE RL_SLOT_API IS
  -- Places one event: the slot that it has, or a place in the first window with
  -- room. Times are text, 'YYYY-MM-DD HH24:MI:SS.FF6' in UTC; sizes are
  -- milliseconds; flags are 0 or 1. It ends the caller's transaction.
  --
  -- p_status: 0 no window for it, 1 it got a slot, 2 it had one. Numbers are never
  -- NULL. p_slot_* texts are, with status 0, and p_slot_creat_ts of a slot made just
  -- now. p_first_count is the highest count seen in the window of the requested time,
  -- -1 if it was not looked at; all windows in [p_from, p_low) were seen to be full;
  -- p_frontier_seen is how far windows are provisioned, NULL if unknown.
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
    p_first_known   IN RL_WNDW_CT.SLOT_CT%TYPE,
    p_base          IN VARCHAR2,
    p_grid          IN VARCHAR2,
    p_from          IN VARCHAR2,
    p_direct        IN RL_WNDW_CT.SLOT_CT%TYPE,
    p_end           IN VARCHAR2,
    p_chunk         IN RL_WNDW_CT.SLOT_CT%TYPE,
    p_chunks        IN RL_WNDW_CT.SLOT_CT%TYPE,
    p_frontier      IN VARCHAR2,
    p_wait          IN RL_WNDW_CT.SLOT_CT%TYPE,
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
    p_frontier_seen OUT VARCHAR2,
    p_held          OUT RL_WNDW_CT.SLOT_CT%TYPE,
    p_exhausted     OUT RL_WNDW_CT.SLOT_CT%TYPE,
    p_windows       OUT RL_WNDW_CT.SLOT_CT%TYPE,
    p_contended     OUT RL_WNDW_CT.SLOT_CT%TYPE,
    p_provisioned   OUT RL_WNDW_CT.SLOT_CT%TYPE);
END RL_SLOT_API;
/

CREATE OR REPLACE PACKAGE BODY RL_SLOT_API IS
  -- The slot of an event; p_slot_id is NULL if it has none.
  PROCEDURE FIND_SLOT(
    p_event_id IN RL_EVENT_SLOT_DTL.EVENT_ID%TYPE,
    p_slot_id  OUT RL_EVENT_SLOT_DTL.WNDW_SLOT_ID%TYPE,
    p_scope    OUT RL_EVENT_SLOT_DTL.WNDW_SCOPE_NM%TYPE,
    p_size_ms  OUT RL_EVENT_SLOT_DTL.WNDW_SIZE_MS%TYPE,
    p_req      OUT VARCHAR2,
    p_window   OUT VARCHAR2,
    p_sched    OUT VARCHAR2,
    p_config   OUT RL_EVENT_SLOT_DTL.RL_WNDW_CONFIG_ID%TYPE,
    p_creat_ts OUT VARCHAR2) IS
    v_req      RL_EVENT_SLOT_DTL.REQ_TS%TYPE;
    v_window   RL_EVENT_SLOT_DTL.WNDW_STRT_TS%TYPE;
    v_sched    RL_EVENT_SLOT_DTL.COMPUTED_SCHED_TS%TYPE;
    v_creat_ts RL_EVENT_SLOT_DTL.CREAT_TS%TYPE;
  BEGIN
    SELECT WNDW_SLOT_ID, WNDW_SCOPE_NM, WNDW_SIZE_MS, REQ_TS, WNDW_STRT_TS, COMPUTED_SCHED_TS, RL_WNDW_CONFIG_ID, CREAT_TS
      INTO p_slot_id, p_scope, p_size_ms, v_req, v_window, v_sched, p_config, v_creat_ts
      FROM RL_EVENT_SLOT_DTL WHERE EVENT_ID = p_event_id;
    p_req := RL_TXT(v_req);
    p_window := RL_TXT(v_window);
    p_sched := RL_TXT(v_sched);
    p_creat_ts := RL_TXT(v_creat_ts);
  EXCEPTION
    WHEN NO_DATA_FOUND THEN
      p_slot_id := NULL;
      p_size_ms := 0;
  END FIND_SLOT;

  -- Makes the row of one window, unless it is there. It counts what is scheduled
  -- inside it already, whatever the size of the windows that it was placed by.
  PROCEDURE MAKE_ROW(
    p_scope   IN RL_WNDW_CT.WNDW_SCOPE_NM%TYPE,
    p_size_ms IN RL_WNDW_CT.WNDW_SIZE_MS%TYPE,
    p_start   IN RL_WNDW_CT.WNDW_STRT_TS%TYPE,
    p_stop    IN RL_WNDW_CT.WNDW_STRT_TS%TYPE,
    p_made    IN OUT RL_WNDW_CT.SLOT_CT%TYPE) IS
    v_rows  RL_WNDW_CT.SLOT_CT%TYPE;
    v_slots RL_WNDW_CT.SLOT_CT%TYPE;
    v_now   RL_WNDW_CT.CREAT_TS%TYPE;
  BEGIN
    SELECT COUNT(*) INTO v_rows FROM RL_WNDW_CT
     WHERE WNDW_SCOPE_NM = p_scope AND WNDW_SIZE_MS = p_size_ms AND WNDW_STRT_TS = p_start;
    IF v_rows = 0 THEN
      SELECT COUNT(*) INTO v_slots FROM RL_EVENT_SLOT_DTL
       WHERE WNDW_SCOPE_NM = p_scope AND COMPUTED_SCHED_TS >= p_start AND COMPUTED_SCHED_TS < p_stop;
      v_now := RL_NOW();
      INSERT INTO RL_WNDW_CT (WNDW_SCOPE_NM, WNDW_SIZE_MS, WNDW_STRT_TS, SLOT_CT, CREAT_TS)
      VALUES (p_scope, p_size_ms, p_start, v_slots, v_now);
      p_made := p_made + 1;
    END IF;
  EXCEPTION
    WHEN DUP_VAL_ON_INDEX THEN NULL; -- another session was first
  END MAKE_ROW;

  PROCEDURE NOTE_FRONTIER(
    p_scope   IN RL_WNDW_CT.WNDW_SCOPE_NM%TYPE,
    p_size_ms IN RL_WNDW_CT.WNDW_SIZE_MS%TYPE,
    p_grid    IN RL_WNDW_CT.WNDW_STRT_TS%TYPE,
    p_end     IN RL_WNDW_CT.WNDW_STRT_TS%TYPE) IS
    v_rows RL_WNDW_CT.SLOT_CT%TYPE;
    v_now  RL_WNDW_CT.CREAT_TS%TYPE;
  BEGIN
    SELECT COUNT(*) INTO v_rows FROM RL_WNDW_FRONTIER_TRK
     WHERE WNDW_SCOPE_NM = p_scope AND WNDW_SIZE_MS = p_size_ms AND REQ_TS = p_grid AND WNDW_END_TS = p_end;
    IF v_rows = 0 THEN
      v_now := RL_NOW();
      INSERT INTO RL_WNDW_FRONTIER_TRK (WNDW_SCOPE_NM, WNDW_SIZE_MS, REQ_TS, WNDW_END_TS, CREAT_TS)
      VALUES (p_scope, p_size_ms, p_grid, p_end, v_now);
    END IF;
  EXCEPTION
    WHEN DUP_VAL_ON_INDEX THEN NULL; -- another session was first
  END NOTE_FRONTIER;

  -- Makes the rows of [p_from, p_to), in ascending order so that sessions which make
  -- the same ones wait for each other and never crosswise, and commits them before
  -- any window is locked. p_grid is NULL if there is no frontier to note.
  PROCEDURE MAKE_ROWS(
    p_scope   IN RL_WNDW_CT.WNDW_SCOPE_NM%TYPE,
    p_size_ms IN RL_WNDW_CT.WNDW_SIZE_MS%TYPE,
    p_from    IN RL_WNDW_CT.WNDW_STRT_TS%TYPE,
    p_to      IN RL_WNDW_CT.WNDW_STRT_TS%TYPE,
    p_grid    IN RL_WNDW_CT.WNDW_STRT_TS%TYPE,
    p_made    IN OUT RL_WNDW_CT.SLOT_CT%TYPE) IS
    v_start RL_WNDW_CT.WNDW_STRT_TS%TYPE;
    v_stop  RL_WNDW_CT.WNDW_STRT_TS%TYPE;
  BEGIN
    v_start := p_from;
    WHILE v_start < p_to LOOP
      v_stop := RL_ADD_MS(v_start, p_size_ms);
      MAKE_ROW(p_scope, p_size_ms, v_start, v_stop, p_made);
      v_start := v_stop;
    END LOOP;
    IF p_grid IS NOT NULL THEN
      NOTE_FRONTIER(p_scope, p_size_ms, p_grid, p_to);
    END IF;
    COMMIT;
  END MAKE_ROWS;

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

  -- Locks a window with room and counts the event in. p_status is 0 if the window
  -- could not be locked, then nothing is; 1 if the event got its place; 2 if it has
  -- a slot already. Either way the transaction is over. p_count is then the count
  -- with the event, or NULL.
  PROCEDURE CLAIM(
    p_event_id   IN RL_EVENT_SLOT_DTL.EVENT_ID%TYPE,
    p_slot_id    IN RL_EVENT_SLOT_DTL.WNDW_SLOT_ID%TYPE,
    p_scope      IN RL_WNDW_CT.WNDW_SCOPE_NM%TYPE,
    p_size_ms    IN RL_WNDW_CT.WNDW_SIZE_MS%TYPE,
    p_config_id  IN RL_EVENT_SLOT_DTL.RL_WNDW_CONFIG_ID%TYPE,
    p_max        IN RL_WNDW_CT.SLOT_CT%TYPE,
    p_stratified IN RL_WNDW_CT.SLOT_CT%TYPE,
    p_req        IN RL_EVENT_SLOT_DTL.REQ_TS%TYPE,
    p_bits       IN RL_WNDW_CT.SLOT_CT%TYPE,
    p_window     IN RL_WNDW_CT.WNDW_STRT_TS%TYPE,
    p_capacity   IN RL_WNDW_CT.SLOT_CT%TYPE,
    p_elapsed_ms IN RL_WNDW_CT.WNDW_SIZE_MS%TYPE,
    p_status     OUT RL_WNDW_CT.SLOT_CT%TYPE,
    p_count      OUT RL_WNDW_CT.SLOT_CT%TYPE,
    p_sched      OUT RL_EVENT_SLOT_DTL.COMPUTED_SCHED_TS%TYPE,
    p_windows    IN OUT RL_WNDW_CT.SLOT_CT%TYPE) IS
    v_lo     RL_WNDW_CT.WNDW_SIZE_MS%TYPE;
    v_hi     RL_WNDW_CT.WNDW_SIZE_MS%TYPE;
    v_offset RL_WNDW_CT.WNDW_SIZE_MS%TYPE;
    v_rows   RL_WNDW_CT.SLOT_CT%TYPE;
    v_now    RL_EVENT_SLOT_DTL.CREAT_TS%TYPE;
  BEGIN
    p_windows := p_windows + 1;
    p_status := 0;
    p_count := NULL;
    p_sched := NULL;
    BEGIN
      SELECT SLOT_CT INTO p_count FROM RL_WNDW_CT
       WHERE WNDW_SCOPE_NM = p_scope AND WNDW_SIZE_MS = p_size_ms AND WNDW_STRT_TS = p_window AND SLOT_CT < p_capacity
         FOR UPDATE SKIP LOCKED;
    EXCEPTION
      WHEN NO_DATA_FOUND THEN p_count := NULL;
    END;
    IF p_count IS NOT NULL THEN
      v_lo := p_elapsed_ms;
      v_hi := p_size_ms;
      IF p_stratified = 1 THEN
        STRATUM(p_count, p_capacity, p_max, p_size_ms, v_lo, v_hi);
      END IF;
      DRAW(p_bits, v_lo, v_hi, v_offset);
      p_sched := RL_ADD_MS(p_window, v_offset);
      v_now := RL_NOW();
      BEGIN
        INSERT INTO RL_EVENT_SLOT_DTL (WNDW_SLOT_ID, EVENT_ID, WNDW_SCOPE_NM, WNDW_SIZE_MS, REQ_TS, WNDW_STRT_TS,
               COMPUTED_SCHED_TS, RL_WNDW_CONFIG_ID, CREAT_TS)
        VALUES (p_slot_id, p_event_id, p_scope, p_size_ms, p_req, p_window, p_sched, p_config_id, v_now);
        UPDATE RL_WNDW_CT SET SLOT_CT = SLOT_CT + 1
         WHERE WNDW_SCOPE_NM = p_scope AND WNDW_SIZE_MS = p_size_ms AND WNDW_STRT_TS = p_window;
        COMMIT;
        p_status := 1;
        p_count := p_count + 1;
      EXCEPTION
        WHEN DUP_VAL_ON_INDEX THEN
          ROLLBACK;
          SELECT COUNT(*) INTO v_rows FROM RL_EVENT_SLOT_DTL WHERE EVENT_ID = p_event_id;
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

  -- The window of the requested time itself, with the event's own capacity there.
  -- p_count is the highest count seen in it, -1 if its row cannot be had.
  PROCEDURE TRY_FIRST(
    p_event_id    IN RL_EVENT_SLOT_DTL.EVENT_ID%TYPE,
    p_slot_id     IN RL_EVENT_SLOT_DTL.WNDW_SLOT_ID%TYPE,
    p_scope       IN RL_WNDW_CT.WNDW_SCOPE_NM%TYPE,
    p_size_ms     IN RL_WNDW_CT.WNDW_SIZE_MS%TYPE,
    p_config_id   IN RL_EVENT_SLOT_DTL.RL_WNDW_CONFIG_ID%TYPE,
    p_max         IN RL_WNDW_CT.SLOT_CT%TYPE,
    p_stratified  IN RL_WNDW_CT.SLOT_CT%TYPE,
    p_req         IN RL_EVENT_SLOT_DTL.REQ_TS%TYPE,
    p_bits        IN RL_WNDW_CT.SLOT_CT%TYPE,
    p_first       IN RL_WNDW_CT.WNDW_STRT_TS%TYPE,
    p_first_known IN RL_WNDW_CT.SLOT_CT%TYPE,
    p_first_max   IN RL_WNDW_CT.SLOT_CT%TYPE,
    p_elapsed_ms  IN RL_WNDW_CT.WNDW_SIZE_MS%TYPE,
    p_wait        IN RL_WNDW_CT.SLOT_CT%TYPE,
    p_status      OUT RL_WNDW_CT.SLOT_CT%TYPE,
    p_sched       OUT RL_EVENT_SLOT_DTL.COMPUTED_SCHED_TS%TYPE,
    p_count       OUT RL_WNDW_CT.SLOT_CT%TYPE,
    p_held        OUT RL_WNDW_CT.SLOT_CT%TYPE,
    p_windows     IN OUT RL_WNDW_CT.SLOT_CT%TYPE,
    p_contended   IN OUT RL_WNDW_CT.SLOT_CT%TYPE,
    p_provisioned IN OUT RL_WNDW_CT.SLOT_CT%TYPE) IS
    v_stop  RL_WNDW_CT.WNDW_STRT_TS%TYPE;
    v_known RL_WNDW_CT.SLOT_CT%TYPE;
    v_tries NUMBER(1);
  BEGIN
    p_status := 0;
    p_held := 0;
    p_count := NULL;
    v_known := p_first_known;
    v_stop := RL_ADD_MS(p_first, p_size_ms);
    v_tries := 0;
    WHILE v_tries < 2 LOOP
      v_tries := v_tries + 1;
      IF v_known = 0 THEN
        MAKE_ROWS(p_scope, p_size_ms, p_first, v_stop, NULL, p_provisioned);
      END IF;
      CLAIM(p_event_id, p_slot_id, p_scope, p_size_ms, p_config_id, p_max, p_stratified, p_req, p_bits,
            p_first, p_first_max, p_elapsed_ms, p_status, p_count, p_sched, p_windows);
      IF p_status = 0 THEN
        SELECT MAX(SLOT_CT) INTO p_count FROM RL_WNDW_CT
         WHERE WNDW_SCOPE_NM = p_scope AND WNDW_SIZE_MS = p_size_ms AND WNDW_STRT_TS = p_first;
        IF p_count < p_first_max THEN -- held by another
          p_contended := p_contended + 1;
          p_held := p_wait;
        END IF;
      END IF;
      IF p_status = 0 AND p_count IS NULL THEN
        v_known := 0; -- purged since it was seen
      ELSE
        v_tries := 2;
      END IF;
    END LOOP;
    p_count := NVL(p_count, -1);
  END TRY_FIRST;

  -- The earliest window in [p_from, p_to) with room; p_window is NULL if there is
  -- none. It locks nothing.
  PROCEDURE SCOUT(
    p_scope   IN RL_WNDW_CT.WNDW_SCOPE_NM%TYPE,
    p_size_ms IN RL_WNDW_CT.WNDW_SIZE_MS%TYPE,
    p_from    IN RL_WNDW_CT.WNDW_STRT_TS%TYPE,
    p_to      IN RL_WNDW_CT.WNDW_STRT_TS%TYPE,
    p_max     IN RL_WNDW_CT.SLOT_CT%TYPE,
    p_window  OUT RL_WNDW_CT.WNDW_STRT_TS%TYPE) IS
  BEGIN
    SELECT MIN(WNDW_STRT_TS) INTO p_window FROM RL_WNDW_CT
     WHERE WNDW_SCOPE_NM = p_scope AND WNDW_SIZE_MS = p_size_ms
       AND WNDW_STRT_TS >= p_from AND WNDW_STRT_TS < p_to AND SLOT_CT < p_max;
  END SCOUT;

  -- Places the event into [p_from, p_to), the earliest window with room first, and
  -- moves p_from to where it got to. p_passed is the earliest window that was passed
  -- over, or NULL; all windows before p_low were seen to be full.
  PROCEDURE SCAN(
    p_event_id   IN RL_EVENT_SLOT_DTL.EVENT_ID%TYPE,
    p_slot_id    IN RL_EVENT_SLOT_DTL.WNDW_SLOT_ID%TYPE,
    p_scope      IN RL_WNDW_CT.WNDW_SCOPE_NM%TYPE,
    p_size_ms    IN RL_WNDW_CT.WNDW_SIZE_MS%TYPE,
    p_config_id  IN RL_EVENT_SLOT_DTL.RL_WNDW_CONFIG_ID%TYPE,
    p_max        IN RL_WNDW_CT.SLOT_CT%TYPE,
    p_stratified IN RL_WNDW_CT.SLOT_CT%TYPE,
    p_req        IN RL_EVENT_SLOT_DTL.REQ_TS%TYPE,
    p_bits       IN RL_WNDW_CT.SLOT_CT%TYPE,
    p_direct     IN RL_WNDW_CT.SLOT_CT%TYPE,
    p_retried    IN RL_WNDW_CT.SLOT_CT%TYPE,
    p_wait       IN RL_WNDW_CT.SLOT_CT%TYPE,
    p_to         IN RL_WNDW_CT.WNDW_STRT_TS%TYPE,
    p_from       IN OUT RL_WNDW_CT.WNDW_STRT_TS%TYPE,
    p_passed     IN OUT RL_WNDW_CT.WNDW_STRT_TS%TYPE,
    p_low        IN OUT RL_WNDW_CT.WNDW_STRT_TS%TYPE,
    p_status     OUT RL_WNDW_CT.SLOT_CT%TYPE,
    p_window     OUT RL_WNDW_CT.WNDW_STRT_TS%TYPE,
    p_sched      OUT RL_EVENT_SLOT_DTL.COMPUTED_SCHED_TS%TYPE,
    p_held       OUT RL_WNDW_CT.SLOT_CT%TYPE,
    p_windows    IN OUT RL_WNDW_CT.SLOT_CT%TYPE,
    p_contended  IN OUT RL_WNDW_CT.SLOT_CT%TYPE) IS
    v_direct RL_WNDW_CT.SLOT_CT%TYPE;
    v_count  RL_WNDW_CT.SLOT_CT%TYPE;
    v_seen   RL_WNDW_CT.WNDW_STRT_TS%TYPE;
    v_next   RL_WNDW_CT.WNDW_STRT_TS%TYPE;
  BEGIN
    p_status := 0;
    p_held := 0;
    p_window := NULL;
    p_sched := NULL;
    v_direct := p_direct;
    WHILE p_from < p_to AND p_status = 0 AND p_held = 0 LOOP
      v_seen := NULL; -- all windows before this one are full
      p_window := p_from;
      IF v_direct = 0 THEN
        SCOUT(p_scope, p_size_ms, p_from, p_to, p_max, p_window);
        v_seen := p_window;
        IF p_window IS NULL THEN
          v_seen := p_to;
          p_from := p_to;
        END IF;
      END IF;
      IF p_window IS NOT NULL THEN
        CLAIM(p_event_id, p_slot_id, p_scope, p_size_ms, p_config_id, p_max, p_stratified, p_req, p_bits,
              p_window, p_max, 0, p_status, v_count, p_sched, p_windows);
        v_next := RL_ADD_MS(p_window, p_size_ms);
        IF p_status = 1 AND v_count >= p_max THEN
          v_seen := v_next;
        END IF;
      END IF;
      IF v_seen > p_low AND p_passed IS NULL AND p_retried = 0 THEN
        p_low := v_seen;
      END IF;
      IF p_window IS NOT NULL AND p_status = 0 AND v_direct = 0 THEN
        -- Held by another, or filled since it was scouted. With p_direct the scout
        -- has yet to tell.
        p_contended := p_contended + 1;
        p_held := p_wait;
        IF p_passed IS NULL THEN
          p_passed := p_window;
        END IF;
        p_from := v_next;
      END IF;
      v_direct := 0;
    END LOOP;
  END SCAN;

  -- The windows after the first one, as far as the search may reach; it makes more
  -- of them on the way.
  PROCEDURE TRY_LATER(
    p_event_id    IN RL_EVENT_SLOT_DTL.EVENT_ID%TYPE,
    p_slot_id     IN RL_EVENT_SLOT_DTL.WNDW_SLOT_ID%TYPE,
    p_scope       IN RL_WNDW_CT.WNDW_SCOPE_NM%TYPE,
    p_size_ms     IN RL_WNDW_CT.WNDW_SIZE_MS%TYPE,
    p_config_id   IN RL_EVENT_SLOT_DTL.RL_WNDW_CONFIG_ID%TYPE,
    p_max         IN RL_WNDW_CT.SLOT_CT%TYPE,
    p_stratified  IN RL_WNDW_CT.SLOT_CT%TYPE,
    p_req         IN RL_EVENT_SLOT_DTL.REQ_TS%TYPE,
    p_bits        IN RL_WNDW_CT.SLOT_CT%TYPE,
    p_base        IN RL_WNDW_CT.WNDW_STRT_TS%TYPE,
    p_grid        IN RL_WNDW_CT.WNDW_STRT_TS%TYPE,
    p_from        IN RL_WNDW_CT.WNDW_STRT_TS%TYPE,
    p_direct      IN RL_WNDW_CT.SLOT_CT%TYPE,
    p_end         IN RL_WNDW_CT.WNDW_STRT_TS%TYPE,
    p_chunk       IN RL_WNDW_CT.SLOT_CT%TYPE,
    p_chunks      IN RL_WNDW_CT.SLOT_CT%TYPE,
    p_wait        IN RL_WNDW_CT.SLOT_CT%TYPE,
    p_frontier    IN OUT RL_WNDW_CT.WNDW_STRT_TS%TYPE,
    p_low         IN OUT RL_WNDW_CT.WNDW_STRT_TS%TYPE,
    p_status      OUT RL_WNDW_CT.SLOT_CT%TYPE,
    p_window      OUT RL_WNDW_CT.WNDW_STRT_TS%TYPE,
    p_sched       OUT RL_EVENT_SLOT_DTL.COMPUTED_SCHED_TS%TYPE,
    p_held        OUT RL_WNDW_CT.SLOT_CT%TYPE,
    p_exhausted   OUT RL_WNDW_CT.SLOT_CT%TYPE,
    p_windows     IN OUT RL_WNDW_CT.SLOT_CT%TYPE,
    p_contended   IN OUT RL_WNDW_CT.SLOT_CT%TYPE,
    p_provisioned IN OUT RL_WNDW_CT.SLOT_CT%TYPE) IS
    v_chunk_ms NUMBER(19);
    v_stop     RL_WNDW_CT.WNDW_STRT_TS%TYPE; -- of what is provisioned
    v_limit    RL_WNDW_CT.WNDW_STRT_TS%TYPE;
    v_from     RL_WNDW_CT.WNDW_STRT_TS%TYPE;
    v_to       RL_WNDW_CT.WNDW_STRT_TS%TYPE;
    v_passed   RL_WNDW_CT.WNDW_STRT_TS%TYPE;
    v_next     RL_WNDW_CT.WNDW_STRT_TS%TYPE;
    v_direct   RL_WNDW_CT.SLOT_CT%TYPE;
    v_retried  RL_WNDW_CT.SLOT_CT%TYPE;
    v_done     NUMBER(1);
  BEGIN
    p_exhausted := 0;
    v_chunk_ms := p_chunk * p_size_ms;
    v_stop := p_frontier;
    IF v_stop IS NULL THEN
      SELECT MAX(WNDW_END_TS) INTO v_stop FROM RL_WNDW_FRONTIER_TRK
       WHERE WNDW_SCOPE_NM = p_scope AND WNDW_SIZE_MS = p_size_ms AND REQ_TS = p_grid;
    END IF;
    IF v_stop IS NULL THEN
      v_stop := p_grid;
    END IF;
    p_frontier := v_stop;
    v_limit := RL_ADD_MS(p_base, v_chunk_ms);
    IF v_stop > v_limit THEN
      v_limit := v_stop;
    END IF;
    v_limit := RL_ADD_MS(v_limit, p_chunks * v_chunk_ms);
    IF v_limit > p_end THEN
      v_limit := p_end;
    END IF;

    v_from := p_from;
    v_passed := NULL;
    v_retried := 0;
    v_done := 0;
    WHILE v_done = 0 LOOP
      v_to := v_limit;
      IF v_stop < v_limit THEN
        v_to := v_stop;
      END IF;
      v_direct := 0;
      IF p_direct = 1 AND v_from = p_from AND v_retried = 0 THEN
        v_direct := 1;
      END IF;
      SCAN(p_event_id, p_slot_id, p_scope, p_size_ms, p_config_id, p_max, p_stratified, p_req, p_bits,
           v_direct, v_retried, p_wait, v_to, v_from, v_passed, p_low, p_status, p_window, p_sched, p_held,
           p_windows, p_contended);
      IF p_status <> 0 OR p_held = 1 THEN
        v_done := 1;
      ELSE
        IF v_passed IS NOT NULL AND v_retried = 0 THEN
          -- Whoever held the windows passed over may be done.
          v_from := v_passed;
          v_passed := NULL;
          v_retried := 1;
        ELSIF v_stop >= v_limit THEN
          p_exhausted := 1;
          v_done := 1;
        ELSE
          v_next := p_grid;
          IF v_stop > p_grid THEN
            v_next := v_stop;
          END IF;
          v_stop := RL_ADD_MS(v_next, v_chunk_ms);
          MAKE_ROWS(p_scope, p_size_ms, v_next, v_stop, p_grid, p_provisioned);
          p_frontier := v_stop;
        END IF;
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
    p_first_known   IN RL_WNDW_CT.SLOT_CT%TYPE,
    p_base          IN VARCHAR2,
    p_grid          IN VARCHAR2,
    p_from          IN VARCHAR2,
    p_direct        IN RL_WNDW_CT.SLOT_CT%TYPE,
    p_end           IN VARCHAR2,
    p_chunk         IN RL_WNDW_CT.SLOT_CT%TYPE,
    p_chunks        IN RL_WNDW_CT.SLOT_CT%TYPE,
    p_frontier      IN VARCHAR2,
    p_wait          IN RL_WNDW_CT.SLOT_CT%TYPE,
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
    p_frontier_seen OUT VARCHAR2,
    p_held          OUT RL_WNDW_CT.SLOT_CT%TYPE,
    p_exhausted     OUT RL_WNDW_CT.SLOT_CT%TYPE,
    p_windows       OUT RL_WNDW_CT.SLOT_CT%TYPE,
    p_contended     OUT RL_WNDW_CT.SLOT_CT%TYPE,
    p_provisioned   OUT RL_WNDW_CT.SLOT_CT%TYPE) IS
    v_req      RL_EVENT_SLOT_DTL.REQ_TS%TYPE;
    v_first    RL_WNDW_CT.WNDW_STRT_TS%TYPE;
    v_base     RL_WNDW_CT.WNDW_STRT_TS%TYPE;
    v_grid     RL_WNDW_CT.WNDW_STRT_TS%TYPE;
    v_from     RL_WNDW_CT.WNDW_STRT_TS%TYPE;
    v_end      RL_WNDW_CT.WNDW_STRT_TS%TYPE;
    v_frontier RL_WNDW_CT.WNDW_STRT_TS%TYPE;
    v_low      RL_WNDW_CT.WNDW_STRT_TS%TYPE;
    v_window   RL_WNDW_CT.WNDW_STRT_TS%TYPE;
    v_sched    RL_EVENT_SLOT_DTL.COMPUTED_SCHED_TS%TYPE;
  BEGIN
    v_req := RL_TS(p_req);
    v_first := RL_TS(p_first);
    v_base := RL_TS(p_base);
    v_grid := RL_TS(p_grid);
    v_from := RL_TS(p_from);
    v_end := RL_TS(p_end);
    v_frontier := RL_TS(p_frontier);
    v_low := v_from;
    p_first_count := -1;
    p_held := 0;
    p_exhausted := 0;
    p_windows := 0;
    p_contended := 0;
    p_provisioned := 0;

    p_status := 2;
    FIND_SLOT(p_event_id, p_slot_slot_id, p_slot_scope, p_slot_size_ms, p_slot_req, p_slot_window, p_slot_sched,
              p_slot_config, p_slot_creat_ts);
    IF p_slot_slot_id IS NULL THEN
      p_status := 0;
      IF p_first_max > 0 THEN
        v_window := v_first;
        TRY_FIRST(p_event_id, p_slot_id, p_scope, p_size_ms, p_config_id, p_max, p_stratified, v_req, p_bits,
                  v_first, p_first_known, p_first_max, p_elapsed_ms, p_wait, p_status, v_sched, p_first_count, p_held,
                  p_windows, p_contended, p_provisioned);
      END IF;
      IF p_status = 0 AND p_held = 0 THEN
        TRY_LATER(p_event_id, p_slot_id, p_scope, p_size_ms, p_config_id, p_max, p_stratified, v_req, p_bits,
                  v_base, v_grid, v_from, p_direct, v_end, p_chunk, p_chunks, p_wait, v_frontier, v_low,
                  p_status, v_window, v_sched, p_held, p_exhausted, p_windows, p_contended, p_provisioned);
      END IF;
      IF p_status = 2 THEN -- another session placed the event meanwhile
        FIND_SLOT(p_event_id, p_slot_slot_id, p_slot_scope, p_slot_size_ms, p_slot_req, p_slot_window, p_slot_sched,
                  p_slot_config, p_slot_creat_ts);
      ELSIF p_status = 1 THEN
        p_slot_slot_id := p_slot_id;
        p_slot_scope := p_scope;
        p_slot_size_ms := p_size_ms;
        p_slot_req := p_req;
        p_slot_window := RL_TXT(v_window);
        p_slot_sched := RL_TXT(v_sched);
        p_slot_config := p_config_id;
      END IF;
    END IF;
    IF p_status = 2 AND p_slot_slot_id = p_slot_id THEN
      p_status := 1; -- an earlier try took effect although its answer was lost
    END IF;
    p_low := RL_TXT(v_low);
    p_frontier_seen := RL_TXT(v_frontier);
    COMMIT; -- of nothing: it ends the transaction that reading began
  EXCEPTION
    WHEN OTHERS THEN
      ROLLBACK;
      RAISE;
  END ASSIGN_SLOT;
END RL_SLOT_API;
/
