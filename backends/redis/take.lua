-- Decides a slice of requests exactly as limit.Decide does; see README.md for
-- the layout of keys. All numbers are doubles that hold integers below 2^53:
-- instants and waits in microseconds, units, and levels of buckets.
--
-- KEYS     every key that the slice uses, once
-- ARGV[1]  the requests (little endian, written by call.add and addOp in Go):
--          u8 flags (1 zset layout: instants in whole milliseconds, 2 dry run:
--          decide, but record nothing), u16 requests
--          request: f64 instant (negative = this server's clock), u16 ops
--          op:      u8 algorithm + 8 shadow + 16 each + 32 settle + 64 had room,
--                   u16 key (from 1), u16 number of the op, f64 cost, capacity,
--                   window, and two figures of the algorithm
--          to settle is to undo part of a request that was refused elsewhere;
--          all ops of its request say so, and the list of them is followed by
--                   f64 each: the instant at which to undo the op, or 0
-- ARGV[2]  zset layout: what makes the members of this slice unique
--
-- Returns the server's instant (f64) and per request a u8:
-- 0 refused, 1 admitted, 2 + u16 key: that key holds foreign data. After 0 and
-- 1 there is per op: u8 had room, f64 remaining, retry, reset, instant charged.

local unpack_, pack = struct.unpack, struct.pack
local call, pcall_ = redis.call, redis.pcall
local floor, ceil, min, max = math.floor, math.ceil, math.min, math.max
local blob, salt = ARGV[1], ARGV[2]

local NEVER = -1
local EXACT = 4503599627370496 -- 2^52
local FIXED, LOG, SLIDING = 1, 2, 3
local WRAP = 8388608 -- running sums of a list are kept modulo 2^23, in 5 bytes
local MARGIN = 1000000 -- keys outlive their use by a second

local flags, requests, pos = unpack_('<BH', blob)
local zset, dry = flags % 2 == 1, flags > 1
local states, dirty, logs = {}, {}, {}

local time = call('TIME')
local clock = tonumber(time[1]) * 1000000 + tonumber(time[2])
local precise = clock
if zset then clock = clock - clock % 1000 end
local since -- the instant from which the lives of keys are counted

-- sane says whether headgate may have stored x.
local function sane(x)
  return x and x >= 0 and x <= EXACT
end

-- read returns what a reading command answers, or nil for a key of another
-- type. Other errors end the script.
local function read(...)
  local r = pcall_(...)
  if type(r) == 'table' and r.err then
    if string.find(r.err, 'WRONGTYPE', 1, true) then return nil end
    return call(...)
  end
  return r
end

-- Counters and buckets: a string of a tag and the three figures of limit.State.
-- They are read once per slice and written once, at its end.

local function load_state(k, algorithm)
  local raw = read('GET', KEYS[k])
  if raw == nil then return nil end
  local s
  if not raw then
    s = {0, 0, 0}
  else
    if #raw ~= 25 then return nil end
    local tag, at, n, m = unpack_('<Bddd', raw)
    if tag ~= algorithm or not (sane(at) and sane(n) and sane(m)) then return nil end
    s = {at, n, m}
  end
  states[k] = s
  return s
end

-- changed notes that s must be written and how long it is of use.
local function changed(k, s, algorithm, ends)
  s[4], s[5] = algorithm, ends - since
  dirty[k] = s
end

local function fixed_window(s, at, k, cost, want, cap, win)
  local start = at - at % win
  local used = s[2]
  if s[1] < start then used = 0 end
  local ok = cost < 0 or want <= cap - used
  if ok and cost ~= 0 then
    if cost > 0 then
      used = used + cost
    elseif cost < -used then
      used = 0
    else
      used = used + cost
    end
    s[1], s[2] = start, used
    changed(k, s, FIXED, start + win)
  end
  local wait = start + win - at
  local retry = 0
  if want > cap then
    retry = NEVER
  elseif want > cap - used then
    retry = wait
  end
  return ok, cap - used, retry, wait
end

-- weigh returns how much of count units of a window still counts when rest
-- microseconds of the next one are left.
local function weigh(count, rest, win, step, steps)
  if count > 4294967296 then count = 4294967296 end
  return floor((count * (steps - floor((win - rest) / step)) + steps - 1) / steps)
end

-- rest_for returns the largest rest of a window at which count units of the
-- one before weigh at most room.
local function rest_for(count, room, win, step, steps)
  if count > 4294967296 then count = 4294967296 end
  if count <= room then return win end
  return max(win - (steps - floor(room * steps / count)) * step, 0)
end

local function sliding_window(s, at, k, cost, want, cap, win, step, steps)
  local start = at - at % win
  local cur, prev = s[2], s[3]
  if s[1] < start then
    cur, prev = 0, cur
    if s[1] < start - win then prev = 0 end
  end
  local rest = start + win - at
  local weighted = weigh(prev, rest, win, step, steps)
  local ok = cost < 0 or want <= cap - min(cur + weighted, EXACT)
  if ok and cost ~= 0 then
    if cost > 0 then
      cur = cur + cost
    else
      local back = min(-cost, cur + prev)
      local from = min(back, cur)
      cur, prev = cur - from, prev - (back - from)
      weighted = weigh(prev, rest, win, step, steps)
    end
    s[1], s[2], s[3] = start, cur, prev
    changed(k, s, SLIDING, start + (cur > 0 and 2 * win or win))
  end
  local retry, reset = 0, 0
  if cur > 0 then
    reset = rest + win
  elseif prev > 0 then
    reset = rest
  end
  if want > cap then
    retry = NEVER
  elseif want > cap - cur - weighted then
    local room = cap - want - cur
    if room >= 0 then
      retry = rest - rest_for(prev, room, win, step, steps)
    else
      retry = rest + win - rest_for(cur, cap - want, win, step, steps)
    end
  end
  return ok, cap - cur - weighted, retry, reset
end

local function token_bucket(s, at, k, cost, want, cap, win, num, den)
  local full = cap * num
  local level = full
  if s[3] > 0 then
    level = s[2]
    if s[3] ~= num then level = min(floor(level / s[3]), cap) * num end
    if level > full then level = full end
    local gained = at - s[1]
    if gained < floor((full - level + den - 1) / den) then
      level = level + gained * den
    else
      level = full
    end
  end
  local ok = cost < 0 or want <= floor(level / num)
  if ok and cost ~= 0 then
    if cost > 0 then
      level = level - cost * num
    else
      level = level + min(min(-cost, cap) * num, full - level)
    end
    s[1], s[2], s[3] = at, level, num
    changed(k, s, 4, at + floor((full - level + den - 1) / den))
  end
  local retry = 0
  if want > cap then
    retry = NEVER
  elseif want * num > level then
    retry = floor((want * num - level + den - 1) / den)
  end
  return ok, floor(level / num), retry, floor((full - level + den - 1) / den)
end

-- Logs are rarer than the rest and need many functions, which cost time to
-- make in every run: log_machine makes them when the first log is met.
local load_log, sliding_log, commit, undo_log

local function log_machine()

-- Logs. A view v of the stored log numbers its units from the oldest, 1 to
-- total. A request works on the view and commits it at its end:
--   lo, hi      units up to lo have expired, those after hi were given back
--   pend        records to be added, newest first: {n, older}; all at pend_at
-- In a list, elements come in pairs: the header (instant until which the key
-- lives, running sum before the first record), then per record its instant
-- and the running sum up to and with it. Sums make every look-up a binary
-- search. In a zset each unit is a member; its score is in milliseconds.

-- pair returns the two figures of pair i of a list; the header is pair 0.
local function pair(key, i)
  local r = call('LRANGE', key, 2 * i, 2 * i + 1)
  return tonumber(r[1]), tonumber(r[2])
end

local function load_list(v, key)
  local head = read('LRANGE', key, 0, 3)
  if head == nil then return nil end
  if #head > 0 then
    local tail = call('LRANGE', key, -2, -1)
    local ends, base, t1, c1 = tonumber(head[1]), tonumber(head[2]), tonumber(head[3]), tonumber(head[4])
    local tl, cl = tonumber(tail[1]), tonumber(tail[2])
    -- A log may live for a window beyond the latest instant there is.
    if not (ends and ends >= 0 and ends <= 2 * EXACT and sane(base) and sane(t1) and sane(c1) and sane(tl) and sane(cl)) then
      return nil
    end
    v.ends, v.base, v.first, v.unit1 = ends, base, t1, (c1 - base) % WRAP
    v.total, v.last = (cl - base) % WRAP, tl
  end
  return v
end

local function load_zset(v, key)
  local total = read('ZCARD', key)
  if total == nil then return nil end
  if total > 0 then
    local newest = tonumber(call('ZRANGE', key, -1, -1, 'WITHSCORES')[2])
    local oldest = tonumber(call('ZRANGE', key, 0, 0, 'WITHSCORES')[2])
    newest, oldest = floor(newest) * 1000, floor(oldest) * 1000
    if not (sane(newest) and sane(oldest)) then return nil end
    v.total, v.last, v.first = total, newest, oldest
  end
  return v
end

function load_log(k)
  local v = {total = 0, last = 0, lo = 0, pended = 0}
  if zset then v = load_zset(v, KEYS[k]) else v = load_list(v, KEYS[k]) end
  if v then
    v.hi = v.total
    logs[k] = v
  end
  return v
end

-- search returns the first record of a list for which after(instant, unit)
-- holds, as index, instant and last unit, and the last unit of the record
-- before. The first record must not satisfy it, the last one must.
local function search(v, key, by_unit, x)
  local low, high, stride = 1, nil, 1
  local before, t, u = v.unit1, nil, nil
  while not high or high - low > 1 do
    local mid = high and floor((low + high) / 2) or low + stride
    local mt, mc = pair(key, mid)
    local mu = mt and (mc - v.base) % WRAP
    if not mt then
      high = mid
    elseif (by_unit and mu or mt) > x then
      high, t, u = mid, mt, mu
    else
      low, before = mid, mu
    end
    stride = stride * 2
  end
  return high, t, u, before
end

-- expired returns how many stored units are not after edge, and for a list
-- how many records hold them.
local function expired(v, key, edge)
  if v.total == 0 or v.first > edge then return 0, 0 end
  if v.last <= edge then return v.total, nil end
  if zset then return call('ZCOUNT', key, '-inf', string.format('%.3f', edge / 1000)), nil end
  local i, _, _, before = search(v, key, false, edge)
  return before, i - 1
end

-- instant_of returns the instant of stored unit u and, for a list, the index
-- and the last unit of the record before the one that holds it.
local function instant_of(v, key, u)
  if zset then return tonumber(call('ZRANGE', key, u - 1, u - 1, 'WITHSCORES')[2]) * 1000 end
  if u <= v.unit1 then return v.first, 0 end
  local i, t = search(v, key, true, u - 1)
  return t, i - 1
end

function sliding_log(v, at, k, cost, want, cap, win, number)
  local key = KEYS[k]
  local gone, records = expired(v, key, at - win)
  if gone > v.hi then gone = v.hi end
  if gone < v.lo then gone = v.lo end
  local used = v.hi - gone + v.pended
  local ok = cost < 0 or want <= cap - used
  if ok and cost ~= 0 then
    if gone > v.lo then v.lo, v.records = gone, records end
    if cost > 0 then
      v.pend, v.pended, v.pend_at = {cost, v.pend, number}, v.pended + cost, at
      used = used + cost
    else
      local back = min(-cost, used)
      used = used - back
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
    v.window, v.dirty = win, true
  end
  local reset, retry = 0, 0
  local last = v.pend and v.pend_at or v.last
  if used > 0 then reset = last + win - at end
  if want > cap then
    retry = NEVER
  elseif want > cap - used then
    local u = gone + want - (cap - used)
    local t = u > v.hi and v.pend_at
    if not t then t = u == gone + 1 and gone == 0 and v.first or instant_of(v, key, u) end
    retry = t + win - at
  end
  return ok, cap - used, retry, reset
end

-- append adds the view's pending records to args, a command to be called.
local function append_pending(v, args, unit)
  local chain, n = {}, 0
  local p = v.pend
  while p do
    n = n + 1
    chain[n], p = p, p[2]
  end
  for i = n, 1, -1 do
    unit = unit + chain[i][1]
    args[#args + 1] = v.pend_at
    args[#args + 1] = unit % WRAP
  end
end

local function commit_list(v, key)
  local last = v.pend and v.pend_at or v.last
  local need = last + v.window + MARGIN
  local ends = need + floor(v.window / 8) + MARGIN -- in advance, so that few takes must move it
  local fresh = v.hi <= v.lo
  if fresh then
    if v.total > 0 then call('DEL', key) end
    if not v.pend then return end
    local args = {'RPUSH', key, ends, 0}
    append_pending(v, args, 0)
    call(unpack(args))
    call('PEXPIRE', key, ceil((ends - since) / 1000))
    return
  end
  if v.hi < v.total then
    local _, before = instant_of(v, key, v.hi)
    call('LTRIM', key, 0, 2 * before + 3)
    call('LSET', key, -1, (v.base + v.hi) % WRAP)
  end
  if v.lo > 0 then
    -- The pair of the last expired record becomes the header: its running
    -- sum is the one before the first record that stays.
    call('LTRIM', key, 2 * v.records, -1)
  end
  if v.pend then
    local args = {'RPUSH', key}
    append_pending(v, args, v.base + v.hi)
    call(unpack(args))
  end
  if need > v.ends then
    call('LSET', key, 0, ends)
    call('PEXPIRE', key, ceil((ends - since) / 1000))
  elseif v.lo > 0 then
    call('LSET', key, 0, v.ends)
  end
end

-- members adds the n members of op number to args, with score.
local function members(args, number, n, score)
  local name = salt .. pack('<H', number)
  for i = 0, n - 1 do
    local c = string.char(i % 256)
    if i > 255 then c = c .. pack('<H', floor(i / 256)) end
    if score then args[#args + 1] = score end
    args[#args + 1] = name .. c
    if #args > 1000 then
      call(unpack(args))
      args = {args[1], args[2]}
    end
  end
  if #args > 2 then call(unpack(args)) end
end

local function commit_zset(v, key)
  if v.hi < v.total then call('ZREMRANGEBYRANK', key, v.hi, -1) end
  if v.lo > 0 then call('ZREMRANGEBYRANK', key, 0, v.lo - 1) end
  local p = v.pend
  while p do
    members({'ZADD', key}, p[3], p[1], v.pend_at / 1000)
    p = p[2]
  end
  local last = v.pend and v.pend_at or v.last
  if v.hi > v.lo or v.pend then
    call('PEXPIRE', key, ceil((last + v.window + MARGIN - since) / 1000))
  end
end

-- commit writes what a request did to log k. A view that was only added to
-- stays good for the slice's next request; others are read again.
function commit(k, v)
  if zset then commit_zset(v, KEYS[k]) else commit_list(v, KEYS[k]) end
  if zset or v.lo > 0 or v.hi < v.total or v.total == 0 then
    logs[k] = nil
    return
  end
  v.total = v.total + v.pended
  v.hi = v.total
  if v.pend then v.last = v.pend_at end
  local need = v.last + v.window + MARGIN
  if need > v.ends then v.ends = need + floor(v.window / 8) + MARGIN end
  v.pend, v.pended, v.dirty = nil, 0, nil
end

-- undo_list takes n units that were recorded at instant t out of a list, and
-- moves up the running sums of what has come since.
local function undo_list(key, t, n)
  local size = call('LLEN', key) / 2
  local i, tail = size, {}
  local from
  while i > 1 and i > size - 1024 do
    i = i - 1
    local at, c = pair(key, i)
    if at < t then break end
    tail[#tail + 1] = {at, c}
    from = i
  end
  if not from then return end
  local _, sum = pair(key, from - 1)
  local before, args = sum, {'RPUSH', key}
  call('LTRIM', key, 0, 2 * from - 1)
  for j = #tail, 1, -1 do
    local units = (tail[j][2] - before) % WRAP
    before = tail[j][2]
    if tail[j][1] == t then
      local back = min(units, n)
      units, n = units - back, n - back
    end
    if units > 0 then
      sum = (sum + units) % WRAP
      args[#args + 1] = tail[j][1]
      args[#args + 1] = sum
    end
    if #args > 1000 or j == 1 and #args > 2 then
      call(unpack(args))
      args = {'RPUSH', key}
    end
  end
  if call('LLEN', key) <= 2 then call('DEL', key) end
end

function undo_log(k, number, t, n)
  if zset then
    members({'ZREM', KEYS[k]}, number, n)
  else
    undo_list(KEYS[k], t, n)
  end
  load_log(k)
end

end

-- undo gives back the cost, below zero, that a refused request of several
-- partitions took at instant t. It returns what is left to be done as an
-- ordinary cost: exactly what was taken comes back, even if others have been
-- admitted since.
local function undo(algorithm, k, number, t, cost, win)
  if algorithm == LOG then
    undo_log(k, number, t, -cost)
    return 0
  end
  local s = states[k]
  local start = t - t % win
  if algorithm == FIXED and s[1] ~= start then return 0 end
  if algorithm == SLIDING then
    if s[1] == start + win then
      s[3] = max(s[3] + cost, 0)
      changed(k, s, SLIDING, s[1] + (s[2] > 0 and 2 * win or win))
    end
    if s[1] ~= start then return 0 end
    return max(cost, -s[2])
  end
  return cost
end

-- step decides one op alone at instant now and returns its outcome: whether it
-- had room, what remains, retry, reset, and the instant charged.
local function step(now, algorithm, k, number, cost, cap, win, x, y)
  local want = cost > 1 and cost or 1
  local ok, remaining, retry, reset, at
  if algorithm == LOG then
    local v = logs[k]
    at = v.pend and v.pend_at or v.last
    if at < now then at = now end
    ok, remaining, retry, reset = sliding_log(v, at, k, cost, want, cap, win, number)
  else
    local s = states[k]
    at = s[1]
    if at < now then at = now end
    if algorithm == FIXED then
      ok, remaining, retry, reset = fixed_window(s, at, k, cost, want, cap, win)
    elseif algorithm == SLIDING then
      ok, remaining, retry, reset = sliding_window(s, at, k, cost, want, cap, win, x, y)
    else
      ok, remaining, retry, reset = token_bucket(s, at, k, cost, want, cap, win, x, y)
    end
  end
  if remaining < 0 then remaining = 0 end
  if at > now then
    if retry > 0 then retry = retry + at - now end
    if reset > 0 then reset = reset + at - now end
  end
  return ok, remaining, retry, reset, at
end

local function load(algorithm, k)
  if algorithm ~= LOG then return states[k] or load_state(k, algorithm) end
  if not load_log then log_machine() end
  return logs[k] or load_log(k)
end

-- decide_one answers a request of one op: nothing of it is ever taken back.
local function decide_one(now, bits, k, number, cost, cap, win, x, y)
  local algorithm = bits % 8
  if not load(algorithm, k) then return pack('<BH', 2, k) end
  local ok, remaining, retry, reset, at = step(now, algorithm, k, number, cost, cap, win, x, y)
  if algorithm == LOG and logs[k].dirty then commit(k, logs[k]) end
  return pack('<BBdddd', (ok or bits % 16 > 7) and 1 or 0, ok and 1 or 0, remaining, retry, reset, at)
end

-- decide_many is made when the first other request is met. It knows an op as
-- an array: bits, key, number, cost, capacity, window, x, y, then its outcome.
-- (Named fields would make each table grow a second part.)
local function many_machine()

local OK, REMAINING, RETRY, RESET, AT = 9, 10, 11, 12, 13

local function try(op, now, cost)
  op[OK], op[REMAINING], op[RETRY], op[RESET], op[AT] =
    step(now, op[1] % 8, op[2], op[3], cost, op[5], op[6], op[7], op[8])
  return op[OK]
end

-- ask corrects the outcome of an op that is not recorded: what is left is
-- what there is without it. An op that had room need not wait; one that gives
-- back is about a single unit.
local function ask(op, now, had_room, gives)
  local retry = op[RETRY]
  try(op, now, 0)
  op[OK] = had_room
  if not had_room then
    op[RETRY] = retry
  elseif not gives then
    op[RETRY] = 0
  end
end

local function copy(t)
  if not t then return nil end
  local c = {}
  for name, value in pairs(t) do c[name] = value end
  return c
end

local function restore(saved)
  for k, old in pairs(saved) do
    states[k], logs[k], dirty[k] = old[1], old[2], old[3] and old[1] or nil
  end
end

-- refuse records what a refused request still charges and corrects the
-- outcomes of the others.
local function refuse(ops, now)
  for i = 1, #ops do
    if ops[i][1] >= 16 then try(ops[i], now, ops[i][4]) end
  end
  for i = 1, #ops do
    local op = ops[i]
    if op[1] < 16 then ask(op, now, op[OK], op[4] < 0) end
  end
end

-- settle undoes what ops took and charges what a refused request still does.
local function settle(ops, now, times)
  for i = 1, #ops do
    local op = ops[i]
    if times[i] > 0 then
      local left = undo(op[1] % 8, op[2], op[3], times[i], -op[4], op[6])
      if left < 0 then try(op, times[i], left) end
    end
  end
  for i = 1, #ops do
    ops[i][OK], ops[i][RETRY] = ops[i][1] >= 64, 0
    ops[i][1] = ops[i][1] % 32
  end
  refuse(ops, now)
end

local function decide(ops, now)
  local admitted, saved = true, {}
  for i = 1, #ops do
    local op = ops[i]
    local k = op[2]
    if not saved[k] then
      -- Views and states are changed in place: keep what they were.
      local s = states[k]
      saved[k] = {s and {s[1], s[2], s[3], s[4], s[5]}, copy(logs[k]), dirty[k] ~= nil}
    end
    if not try(op, now, op[4]) and op[1] % 16 < 8 then admitted = false end
  end
  if dry then
    restore(saved)
  elseif not admitted then
    restore(saved)
    refuse(ops, now)
  end
  return admitted
end

return function(ops, now, times)
  for i = 1, #ops do
    if not load(ops[i][1] % 8, ops[i][2]) then return pack('<BH', 2, ops[i][2]) end
  end
  local admitted = false
  if times then
    settle(ops, now, times)
  else
    admitted = decide(ops, now)
  end
  local answer = {admitted and '\1' or '\0'}
  for i = 1, #ops do
    local op = ops[i]
    local v = logs[op[2]]
    if v and v.dirty then commit(op[2], v) end
    answer[i + 1] = pack('<Bdddd', op[OK] and 1 or 0, op[REMAINING], op[RETRY], op[RESET], op[AT])
  end
  return table.concat(answer)
end

end

local decide_many
local out = {pack('<d', clock)}
for r = 1, requests do
  local now, n, bits, k, number, cost, cap, win, x, y
  now, n, bits, k, number, cost, cap, win, x, y, pos = unpack_('<dHBHHddddd', blob, pos)
  if now < 0 then now = clock end
  -- Injected instants run at a pace of their own: keys live to the later of
  -- their end by those and by the server's clock.
  since = now < precise and now or precise
  if n == 1 and bits < 32 and not dry then
    out[r + 1] = decide_one(now, bits, k, number, cost, cap, win, x, y)
  else
    local ops = {{bits, k, number, cost, cap, win, x, y, false, 0, 0, 0, 0}}
    for i = 2, n do
      bits, k, number, cost, cap, win, x, y, pos = unpack_('<BHHddddd', blob, pos)
      ops[i] = {bits, k, number, cost, cap, win, x, y, false, 0, 0, 0, 0}
    end
    local times
    if bits >= 32 then
      times = {unpack_(string.rep('d', n), blob, pos)}
      pos = times[n + 1]
    end
    decide_many = decide_many or many_machine()
    out[r + 1] = decide_many(ops, now, times)
  end
end

for k, s in pairs(dirty) do
  call('SET', KEYS[k], pack('<Bddd', s[4], s[1], s[2], s[3]), 'PX', ceil((s[5] + MARGIN) / 1000))
end
return table.concat(out)
