-- SLIDING LOG (limit/step_log.go).
--   sliding_log   decides an op on log k for a cost, and fills the outcome o; number is the op's in the slice
--   one_log       decides a request of one op, which is on a log: nothing of it is ever taken back
-- uses: input, limits, logs, keys, load_log, moved_log, expired, instant_of, shift, waits, listed_log, commit, may_owe,
--   pay_back, debt_machine, late, answer, outcome, out, filled, floor, ceil, min, max, sliding_log, one_log

-- give_back takes units from the end of view v, of what was added before of what is stored.
local function give_back(v, key, back)
  while back > 0 and v.pend do
    local top = v.pend
    local n = min(back, top[1])
    back, v.pended = back - n, v.pended - n
    v.pend = n < top[1] and {top[1] - n, top[2], top[3]} or top[2]
  end
  if back > 0 then
    v.hi = v.hi - back
    v.last = v.hi > v.lo and instant_of(v, key, v.hi) or 0
  end
end

-- stored_log is sliding_log for a view that is no list.
local function stored_log(v, k, now, cost, l, number, o)
  local key, at, want = keys[k], max(v.pend and v.pend_at or v.last, now), max(cost, 1)
  local cap, win, below = input[l + CAPACITY], input[l + WINDOW], input[l + BELOW]
  if below >= 0 and not may_owe then debt_machine() end
  local gone, records = expired(v, key, at - win)
  gone = max(min(gone, v.hi), v.lo)
  if cost < 0 and below > 0 and at > now and v.hi - v.lo + v.pended > 0 then
    local rest, by = pay_back(at - now, cost, l)
    shift(v, key, gone, -by, win)
    listed_log(v, max(now, v.last), rest, 1, l, o)
    o[OK], o[CHARGED] = true, max(o[CHARGED], now)
    return
  end
  local used = v.hi - gone + v.pended
  local ok, taken, owe = cost < 0 or want <= cap - used, 0, 0
  local overflows = not ok and below >= 0 and cost > 0 and not o[CHOICE]
  if overflows then
    taken = max(cap - used, 0)
    owe = min(cost - taken, may_owe(at - now, l))
  end
  local n = ok and cost or taken
  if n ~= 0 then
    if gone > v.lo then v.lo, v.records = gone, records end
    if n > 0 then
      v.pend, v.pended, v.pend_at = {n, v.pend, number}, v.pended + n, at
      used = used + n
    else
      local back = min(-n, used)
      used = used - back
      give_back(v, key, back)
    end
    v.window, v.dirty = win, true
  end
  o[OK], o[LEFT] = ok, overflows and taken + owe or cap - used
  if owe > 0 then
    shift(v, key, gone, ceil(owe * input[l + NUM] / input[l + DEN]), win)
    at = max(v.last, now)
    o[CHARGED] = at
    o[RETRY], o[RESET] = waits(v.list, at, want, cap, win)
    return
  end
  local reset, retry = 0, 0
  if used > 0 then reset = (v.pend and v.pend_at or v.last) + win - at end
  if want > cap then
    retry = NEVER
  elseif want > cap - used then
    local u = gone + want - (cap - used)
    local t = u > v.hi and v.pend_at
    if not t then t = u == gone + 1 and gone == 0 and v.first or instant_of(v, key, u) end
    retry = t + win - at
  end
  o[RETRY], o[RESET], o[CHARGED] = retry, reset, at
end

function sliding_log(k, now, cost, l, number, o)
  local v = logs[k]
  if v.list then
    if not may_owe then debt_machine() end
    listed_log(v, now, cost, max(cost, 1), l, o)
  else
    stored_log(v, k, now, cost, l, number, o)
  end
  late(now, o)
end

function one_log(now, p, number)
  local code, cost, l = input[p], input[p + OP_COST], limits + LIMIT_SIZE * input[p + OP_LIMIT]
  local k = floor(code / OP_BITS)
  local v = logs[k] or load_log(k)
  filled = filled + 1
  if not v then
    local status
    --@include unreadable.lua
    out[filled] = status
    return
  end
  if v.last > now then v = moved_log(k, v, now, l) end
  sliding_log(k, now, cost, l, number, outcome)
  if v.dirty then commit(k, v) end
  out[filled] = (outcome[OK] or code % EACH == SHADOW) and 1 or 0
  answer(now, outcome)
end
