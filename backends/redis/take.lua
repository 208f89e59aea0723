-- Decides a slice of requests exactly as limit.Decide does; see README.md for
-- the layout of keys. All numbers are doubles that hold integers below 2^53:
-- instants and waits in microseconds, units, and levels of buckets.
--
-- KEYS     every key that the slice uses, once
-- ARGV[1]  the slice as doubles (little endian, written by call in Go):
--          flags (1 zset layout: instants in whole milliseconds; 2 all requests are
--          simple and all limits fixed windows, or 4 also sliding windows and token
--          buckets, none of which is charged below zero; 8 INCRBY counts as well, in
--          windows that are numbers; 16 the server has said that it is full, and there
--          is one request), number of requests, number of limits
--          request: instant (negative = this server's clock), shape: 8 * ops
--                   + 3 settlement or 2 refund or 1 simple
--                   + 4 one op is about a lease, the others are as in a simple request
--          op:      8 * key (from 1) + 1 shadow + 2 each, for a bucket that reservations
--                   hold back + 2^23 * the key of these; cost; limit (from 0)
--          limit, after all requests: algorithm, capacity, window, two
--                   figures of the algorithm, and how far below zero a cost
--                   without room takes it (-1: it takes nothing)
--          A simple request has counters and buckets only, each under a key of
--          its own. A refund gives back what the ops took of a request that was
--          refused elsewhere; they are followed by, for each, as of when: see
--          refund. So are the ops of a settlement, or one that gives back: see limit/settle.go.
--          Of a lease (algorithm 5) the cost has more in it: see lease_machine.
--          A fixed window of a calendar (algorithm 256) has as figures when the window
--          of its requests begins and ends, and as window when the one after it
--          ends; that is negative if the requests bring their instant. Else all
--          depends on this server's clock, which the caller has to guess.
-- ARGV[2]  zset layout: what makes the members of this slice unique
-- ARGV[3]… the holders of leases
--
-- Returns doubles: the server's instant, and nothing else, with nothing written, if
-- it is not in the window of a calendar that was sent. Else per request its status:
-- 0 refused,
-- 1 admitted, 1 + key if that key holds foreign data, -1 if a full server has recorded only
-- what it had keys for, and nothing follows. After 0 and 1 there is
-- per op: remaining (-1 - remaining if it had no room; where the limit overflows
-- nothing remains, and it is -1 - what was taken) and reset; or, unless
-- retry is 0 and the op was charged at the request's instant: remaining,
-- -1 - reset, retry, and the instant charged. For a lease one more follows:
-- twice how many are in flight, and 1 if its holder had it before. Of a refund
-- there is the status only: 1 if all was given back. Of a settlement, there are for the
-- first op these and how many leases ended, for others what was taken, what
-- remains and reset.
--
-- Functions are made anew in every run, also for each outer variable that they use,
-- and every command has its price. So slices of counters and buckets, the most common,
-- take a straight path, at the end of this text. It makes no function, and one if not
-- all are fixed windows. All else is one function that uses no outer variable: in it,
-- what leases and logs need is made when they are met.

-- general decides a slice. (Its body is not indented.)
local function general(input, size, clock, precise)


local unpack_, pack, rep = struct.unpack, struct.pack, string.rep
local call, pcall_ = redis.call, redis.pcall
local floor, ceil, min, max = math.floor, math.ceil, math.min, math.max
local keys, salt = KEYS, ARGV[2]

local NEVER = -1
local EXACT = 4503599627370496 -- 2^52
local FIXED, LOG, SLIDING, BUCKET, LEASE, CALENDAR = 1, 2, 3, 4, 5, 256
local WRAP = 8388608 -- running sums of a list are kept modulo 2^23, in 5 bytes
local MARGIN = 1000000 -- keys outlive their use by a second
local AHEAD = 1000000 -- limit.MinAhead
local MOST = 4000 -- values that fit on Lua's stack at once
local PARTS = 64 -- limit.debtRecords
local SHORT = 600 -- elements of a list that is read as a whole
local HELD_BACK = 1048576 -- the key that holds an op back is counted in this
local FIRST, STARTS, UNITS, NEAR = 100000000, 800000000, 10000000000, 100000000000000 -- of such numbers; three years

-- encode returns the first n numbers of list as doubles.
local function encode(list, n)
  if n <= MOST then return pack('<' .. rep('d', n), unpack(list, 1, n)) end
  local parts = {}
  for from = 1, n, MOST do
    local to = min(from + MOST - 1, n)
    parts[#parts + 1] = pack('<' .. rep('d', to - from + 1), unpack(list, from, to))
  end
  return table.concat(parts)
end

local zset, full = input[1] % 2 == 1, input[1] >= 16
local limits = size - 6 * input[3] + 1 -- where the first limit is

for l = limits, size, 6 do
  if input[l] == CALENDAR then
    if input[l + 2] < 0 then
      input[l + 2] = -input[l + 2]
    elseif clock < input[l + 3] or clock >= input[l + 4] then
      return pack('<d', clock)
    end
  end
end

local states, logs, stored = {}, {}, nil
local since -- the instant from which the lives of keys are counted
local out, filled = {clock}, 1

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

-- Counters and buckets: a string of a tag, the three figures of limit.State, the first in
-- seven bytes (28 fit a smaller piece of Redis' memory than 29), and the second of the
-- server's clock until which the key is known to live. A fixed
-- window that is charged by itself can be a whole number instead, so that INCRBY counts
-- without this script: nine digits, 10^8 + (the second of its start modulo 8 * 10^8),
-- and ten for its units. Its key expires after it, and the second of its state is 1.
-- States are read once per slice and written once, at its end. In a run a state is a
-- table that never changes: at, n, m, that second, its tag, and, if it is to be
-- written, for how long it is of use.

local function load_state(k, algorithm)
  if algorithm == CALENDAR then algorithm = FIXED end -- they have one state
  if not stored then
    stored = #keys > 1 and #keys <= MOST and pcall_('MGET', unpack(keys)) or {}
  end
  -- MGET returns nothing for keys of foreign types, as for missing ones, and no
  -- error if the user may not read a key.
  local raw = stored[k] or read('GET', keys[k])
  local s, fresh = nil, false
  if raw then
    local tag, at, n, m, lives
    if #raw == 28 then
      tag, at, n, m, lives = unpack_('<BI7ddI4', raw)
    elseif #raw == 29 then -- of builds before 1.0: it is written anew
      tag, at, n, m = unpack_('<Bddd', raw)
      lives = 0
    elseif #raw == 19 then
      local start, units = tonumber(raw:sub(1, 9)), tonumber(raw:sub(10))
      if start and units and start >= FIRST and start < FIRST + STARTS and start % 1 == 0 then
        local second = floor(precise / 1000000)
        tag, n, m, lives = FIXED, units, 0, 1
        at = (second + (start - FIRST - second + STARTS / 2) % STARTS - STARTS / 2) * 1000000
      end
    elseif algorithm == FIXED and #raw > 0 and #raw < 8 and not string.find(raw, '%D') then
      -- INCRBY has met no key and has made one. It is written anew, to expire.
      tag, at, n, m, lives = FIXED, 0, 0, 0, 0
      fresh = 0
    end
    if tag ~= algorithm or not (at >= 0 and at <= EXACT and n >= 0 and n <= EXACT and m >= 0 and m <= EXACT) then return nil end
    s = {at, n, m, lives, tag, fresh}
  elseif raw == false then
    s = {0, 0, 0, 0, algorithm, false}
  else
    return nil
  end
  states[k] = s
  return s
end

-- The algorithms decide an op of some cost on state s by the limit at l of the
-- input. They return whether the op has room, what remains, retry, reset, and
-- the state with the op recorded, or false if there is nothing to record.

-- calendar_window returns when the window of at begins and ends.
local function calendar_window(at, l)
  if at < input[l + 4] then return input[l + 3], input[l + 4] end
  return input[l + 4], input[l + 2] -- the state lies ahead
end

local function fixed_window(at, s, cost, l)
  local cap, win = input[l + 1], input[l + 2]
  local want = cost > 1 and cost or 1
  local start = at - at % win
  local ends = start + win
  if input[l] == CALENDAR then start, ends = calendar_window(at, l) end
  local used = s[2]
  if s[1] < start then used = 0 end
  local ok = cost < 0 or want <= cap - used
  local after = false
  if ok and cost ~= 0 then
    if cost > 0 then
      used = used + cost
    elseif cost < -used then
      used = 0
    else
      used = used + cost
    end
    after = {start, used, s[3], s[4], FIXED, ends - since}
  end
  local retry = 0
  if want > cap then
    retry = NEVER
  elseif want > cap - used then
    retry = ends - at
  end
  return ok, cap - used, retry, ends - at, after
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

local function sliding_window(at, s, cost, l)
  local cap, win, step, steps = input[l + 1], input[l + 2], input[l + 3], input[l + 4]
  local want = cost > 1 and cost or 1
  local start = at - at % win
  local cur, prev = s[2], s[3]
  if s[1] < start then
    cur, prev = 0, cur
    if s[1] < start - win then prev = 0 end
  end
  local rest = start + win - at
  local weighted = weigh(prev, rest, win, step, steps)
  local ok = cost < 0 or want <= cap - min(cur + weighted, EXACT)
  local after = false
  if ok and cost ~= 0 then
    if cost > 0 then
      cur = cur + cost
    else
      local back = min(-cost, cur + prev)
      local from = min(back, cur)
      cur, prev = cur - from, prev - (back - from)
      weighted = weigh(prev, rest, win, step, steps)
    end
    after = {start, cur, prev, s[4], SLIDING, start + (cur > 0 and 2 * win or win) - since}
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
  return ok, cap - cur - weighted, retry, reset, after
end

local function token_bucket(at, s, cost, l)
  local cap, num, den = input[l + 1], input[l + 3], input[l + 4]
  local want = cost > 1 and cost or 1
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
  local after = ok and cost ~= 0
  if after then
    if cost > 0 then
      level = level - cost * num
    else
      level = level + min(min(-cost, cap) * num, full - level)
    end
  end
  local reset = floor((full - level + den - 1) / den)
  if after then after = {at, level, num, s[4], BUCKET, at + reset - since} end
  local retry = 0
  if want > cap then
    retry = NEVER
  elseif want * num > level then
    retry = floor((want * num - level + den - 1) / den)
  end
  return ok, floor(level / num), retry, reset, after
end

-- step decides one op alone on state s at instant at, which is not before s,
-- and returns what the algorithms do.
local function step(at, s, cost, l)
  local algorithm = input[l]
  if algorithm == FIXED or algorithm == CALENDAR then
    return fixed_window(at, s, cost, l)
  elseif algorithm == SLIDING then
    return sliding_window(at, s, cost, l)
  end
  return token_bucket(at, s, cost, l)
end

-- moved returns state s of key k, whose instant is after now, as it counts for
-- an op with the limit at l: see limit/clock.go, which this mirrors.
local function moved(k, s, now, l)
  local algorithm, win = input[l], input[l + 2]
  local life, start = win, now - now % win
  if algorithm == CALENDAR then
    if s[1] < win then return s end
    start, life, win = input[l + 3], input[l + 4] - input[l + 3], 0
  elseif algorithm == BUCKET then
    life, start = floor((input[l + 1] * input[l + 3] + input[l + 4] - 1) / input[l + 4]), now
    if life < win then win = life end
  elseif algorithm == SLIDING then
    life = 2 * win
  end
  local below = input[l + 5]
  if below > 0 and algorithm == BUCKET then
    win = win + ceil(below * input[l + 3] / input[l + 4])
  elseif below > 0 then
    life = life - win + win * max(1, ceil(min(s[2], input[l + 1] + below) / input[l + 1]))
  end
  if s[1] - now <= max(win, AHEAD) then return s end
  s = {start, s[2], s[3], s[4], s[5], start + life - since}
  states[k] = s
  return s
end

-- late corrects waits of an op charged that much later than its request: they
-- count from the request's instant.
local function late(by, retry, reset)
  if retry > 0 then retry = retry + by end
  if reset > 0 then reset = reset + by end
  return retry, reset
end

-- answer adds the outcome of an op of a request at instant now to the output.
local function answer(now, ok, remaining, retry, reset, at)
  local o = filled
  if remaining < 0 then remaining = 0 end
  out[o + 1] = ok and remaining or -1 - remaining
  if retry == 0 and at == now then
    out[o + 2], filled = reset, o + 2
  else
    out[o + 2], out[o + 3], out[o + 4], filled = -1 - reset, retry, at, o + 4
  end
end

-- due returns the units to charge or, if negative, to return, of units that were charged
-- between two instants: 0 to return if their window is over.
local function due(s, now, from, till, units, l)
  if units >= 0 then return units end
  if till < from or from <= 0 then return 0 end
  if input[l] == BUCKET then return units end
  local at = max(now, min(s[1], EXACT))
  local start = at - at % input[l + 2]
  if input[l] == CALENDAR then start = calendar_window(at, l) end
  if from < start or s[1] ~= start then return 0 end
  return units
end

-- held_back returns state s of a bucket, refilled no further than reserved units
-- allow: see holdBack in limit/settle.go.
local function held_back(s, now, reserved, l)
  if reserved <= 0 or s[1] > now or s[3] ~= input[l + 3] and s[3] > 0 then return s end
  local num, den = input[l + 3], input[l + 4]
  local full = input[l + 1] * num
  local most, level = max(full - reserved * num, 0), s[3] > 0 and min(s[2], full) or full
  if min(level + (now - s[1]) * den, full) <= most then return s end
  return {now, most, num, s[4], BUCKET, now + ceil((full - most) / den) - since}
end

-- Limits that take something of a cost without room are rarer than others:
-- overflow_machine makes what they need when the first one is met. See
-- limit/overflow.go, which it mirrors.
local overflowing, may_owe, pay_back

local function overflow_machine()

-- owed returns what is left of used units after so many windows have paid, and
-- windows_for how many must begin until n units fit.
local function owed(used, windows, cap)
  if windows >= ceil(used / cap) then return 0 end
  return used - windows * cap
end

local function windows_for(used, n, cap) return max(1, ceil((used + n - cap) / cap)) end

-- may_owe returns how many units more may be owed by a state that lies so far
-- ahead of its op.
function may_owe(ahead, l)
  local below, num, den = input[l + 5], input[l + 3], input[l + 4]
  if below == 0 or ahead >= ceil(below * num / den) then return 0 end
  return floor((below * num - ahead * den) / num)
end

-- window returns where the window of an op begins, and what is gone in it and in
-- the one before.
local function window(at, s, l)
  local cap, win, below = input[l + 1], input[l + 2], input[l + 5]
  local start, cur, prev = at - at % win, s[2], s[3]
  if input[l] == CALENDAR then start = calendar_window(at, l) end
  if below > 0 then cur = min(cur, cap + below) end
  if s[1] < start then
    local n = (start - (s[1] - s[1] % win)) / win
    if below > 0 then
      cur, prev = owed(cur, n, cap), min(owed(cur, n - 1, cap), cap)
    else
      cur, prev = 0, n == 1 and cur or 0
    end
  end
  return start, cur, prev
end

-- window_state returns the state of a window, as step does.
local function window_state(s, start, cur, prev, l)
  local cap, win, algorithm = input[l + 1], input[l + 2], input[l]
  if algorithm == CALENDAR then
    local _, ends = calendar_window(start, l)
    return {start, cur, s[3], s[4], FIXED, ends - since}
  end
  local windows = 1
  if input[l + 5] > 0 then windows = windows_for(cur, cap, cap) end
  if algorithm == SLIDING and cur > 0 then windows = windows + 1 end
  return {start, cur, algorithm == FIXED and s[3] or prev, s[4], algorithm, start + windows * win - since}
end

-- window_debt is step for windows that may owe.
local function window_debt(at, s, cost, l)
  local cap, win, step, steps = input[l + 1], input[l + 2], input[l + 3], input[l + 4]
  local fixed, want = input[l] == FIXED, cost > 1 and cost or 1
  local start, cur, prev = window(at, s, l)
  local rest = start + win - at
  if fixed then prev = 0 end
  local weighted = fixed and 0 or weigh(prev, rest, win, step, steps)
  local ok, after = cost < 0 or want <= cap - cur - weighted, false
  if ok and cost ~= 0 then
    if cost > 0 then
      cur = cur + cost
    else
      local back = min(-cost, cur + prev)
      local from = min(back, cur)
      cur, prev = cur - from, prev - (back - from)
      weighted = fixed and 0 or weigh(prev, rest, win, step, steps)
    end
    after = window_state(s, start, cur, prev, l)
  end
  local retry, reset = 0, 0
  if fixed then
    reset = rest + (windows_for(cur, cap, cap) - 1) * win
  elseif cur > 0 then
    reset = rest + windows_for(cur, cap, cap) * win
  elseif prev > 0 then
    reset = rest
  end
  if want > cap then
    retry = NEVER
  elseif want > cap - cur - weighted then
    local n, room = windows_for(cur, want, cap), cap - want - cur
    if fixed then
      retry = rest + (n - 1) * win
    elseif room >= 0 then
      retry = rest - rest_for(prev, room, win, step, steps)
    else
      retry = rest + n * win - rest_for(min(owed(cur, n - 1, cap), cap), cap - want - owed(cur, n, cap), win, step, steps)
    end
  end
  return ok, cap - cur - weighted, retry, reset, after
end

-- bucket_state returns the state of a bucket with this level at an instant, which
-- lies ahead if the level is below zero.
local function bucket_state(s, at, level, l)
  local num, den = input[l + 3], input[l + 4]
  if level < 0 then
    local wait = ceil(-level / den)
    at, level = min(at + wait, EXACT), min(level + wait * den, num - 1)
  end
  return {at, level, num, s[4], BUCKET, at + ceil((input[l + 1] * num - level) / den) - since}
end

local function bucket_level(at, s, l)
  local cap, num, den = input[l + 1], input[l + 3], input[l + 4]
  local full = cap * num
  if s[3] <= 0 then return full end
  local level, gained = s[2], at - s[1]
  if s[3] ~= num then level = min(floor(level / s[3]), cap) * num end
  if level > full then level = full end
  if gained < ceil((full - level) / den) then return level + gained * den end
  return full
end

-- spill returns what a cost takes that has no room, and the state without it.
local function spill(at, now, s, cost, l)
  local cap, below = input[l + 1], input[l + 5]
  if input[l] == BUCKET then
    local level = bucket_level(at, s, l)
    local left = floor(level / input[l + 3])
    local taken = left + min(cost - left, may_owe(at - now, l))
    if taken <= 0 then return 0 end
    return taken, bucket_state(s, at, level - taken * input[l + 3], l)
  end
  local start, cur, prev = window(at, s, l)
  local used = cur
  if input[l] == SLIDING then used = cur + weigh(prev, start + input[l + 2] - at, input[l + 2], input[l + 3], input[l + 4]) end
  local taken = min(cost, cap + below - used)
  if taken <= 0 then return 0 end
  return taken, window_state(s, start, cur + taken, prev, l)
end

-- pay_back has a negative cost pay what a bucket or log owes first that lies so far
-- ahead. It returns what is left of the cost, and by how much less it lies ahead.
function pay_back(ahead, cost, l)
  local below, num, den = input[l + 5], input[l + 3], input[l + 4]
  local due, by = below, ahead
  if ahead < ceil(below * num / den) then due = ceil(ahead * den / num) end
  local paid = min(-cost, due)
  if paid < due then by = min(floor(paid * num / den), ahead) end
  return cost + paid, by
end

-- overflowing decides an op with a limit that overflows. It returns what step does
-- (what remains is what was taken if the op had no room), and the instant charged.
function overflowing(now, s, cost, l)
  local at, below = max(s[1], now), input[l + 5]
  local decide = below > 0 and input[l] ~= BUCKET and window_debt or step
  if cost < 0 and at > now and below > 0 and input[l] == BUCKET then
    local rest, by = pay_back(at - now, cost, l)
    s = {s[1] - by, s[2], s[3], s[4], BUCKET, 0}
    at = max(s[1], now)
    s[6] = s[1] + ceil((input[l + 1] * input[l + 3] - bucket_level(s[1], s, l)) / input[l + 4]) - since
    local _, remaining, retry, reset, after = step(at, s, rest, l)
    return true, remaining, retry, reset, after or s, at
  end
  local ok, remaining, retry, reset, after = decide(at, s, cost, l)
  if ok or cost <= 0 then return ok, remaining, retry, reset, after, at end
  remaining, after = spill(at, now, s, cost, l)
  if after then
    at = max(after[1], now)
    ok, ok, retry, reset = decide(at, after, cost, l)
  end
  return false, remaining, retry, reset, after or false, at
end

end

-- charge decides an op alone, as soon as its state allows. It returns what step does, and the instant charged.
local function charge(now, s, cost, l)
  if input[l + 5] < 0 then
    local at = max(s[1], now)
    local ok, remaining, retry, reset, after = step(at, s, cost, l)
    return ok, remaining, retry, reset, after, at
  end
  if not overflowing then overflow_machine() end
  return overflowing(now, s, cost, l)
end

-- refuse_simple is simple for a request that is refused: it records what is
-- charged all the same, and decides the rest again.
local function refuse_simple(now, n, p)
  for i = p, p + 3 * n - 3, 3 do
    local code, cost, l = input[i], input[i + 1], limits + 6 * input[i + 2]
    local k = floor(code / 8)
    local s = states[k]
    local ok, remaining, retry, reset, after, at = charge(now, s, cost, l)
    if code % 4 > 1 or not ok then
      if after then states[k] = after end
    elseif n > 1 then
      -- It had room, but is not recorded: what is left is what there is
      -- without it. To give back is about a single unit, others need not wait.
      ok, remaining, retry, reset, after, at = charge(now, s, 0, l)
      ok, retry = true, cost < 0 and retry or 0
    end
    if at > now then retry, reset = late(at - now, retry, reset) end
    answer(now, ok, remaining, retry, reset, at)
  end
end

-- simple decides the n ops from p of the input, none of which bears on
-- another: nothing is recorded before the whole request is decided.
local changed = {}
local function simple(now, n, p)
  local status, admitted = filled + 1, true
  filled = status
  local changes = 0
  for i = p, p + 3 * n - 3, 3 do
    local code, l = input[i], limits + 6 * input[i + 2]
    local bits = code % 8
    local k = (code - bits) / 8
    local s = states[k] or load_state(k, input[l])
    if not s then
      out[status], filled = 1 + k, status
      return
    end
    local at = s[1]
    if at > now then
      s = moved(k, s, now, l)
      at = s[1]
    end
    if at < now then at = now end
    local ok, remaining, retry, reset, after
    if input[l + 5] < 0 then
      ok, remaining, retry, reset, after = step(at, s, input[i + 1], l)
    else
      if not overflowing then overflow_machine() end
      ok, remaining, retry, reset, after, at = overflowing(now, s, input[i + 1], l)
    end
    if after then
      changed[changes + 1], changed[changes + 2] = k, after
      changes = changes + 2
    end
    if not ok and bits % 2 < 1 then admitted = false end
    if at > now then retry, reset = late(at - now, retry, reset) end
    answer(now, ok, remaining, retry, reset, at)
  end
  if admitted then
    out[status] = 1
    for i = 1, changes, 2 do states[changed[i]] = changed[i + 1] end
  else
    out[status], filled = 0, status
    refuse_simple(now, n, p)
  end
end

-- Logs are rarer than the rest and need many functions, which cost time to
-- make in every run: log_machine makes them when the first log is met.
local load_log, sliding_log, listed_log, commit, refund_log, one_log, moved_log

local function log_machine()

-- Logs. A view v of the stored log numbers its units from the oldest, 1 to
-- total. A request works on the view and commits it at its end:
--   lo, hi      units up to lo have expired, those after hi were given back
--   pend        records to be added, newest first: {n, older}; all at pend_at
--   list        instead of all that: the records, an instant and units each, of a
--               log that owes. It never changes, but is replaced
-- In a list, elements come in pairs: the header (instant until which the key
-- lives, running sum before the first record), then per record its instant
-- and the running sum up to and with it. Sums make every look-up a binary
-- search. In a zset each unit is a member; its score is in milliseconds.

-- sane says whether headgate may have stored x.
local function sane(x)
  return x and x >= 0 and x <= EXACT
end

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
  if zset then v = load_zset(v, keys[k]) else v = load_list(v, keys[k]) end
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

-- parts divides the n units of a log into PARTS and returns a list of them, each
-- moved by d and as late as its last unit. instant is called with ascending units.
local function parts(n, d, instant)
  local list, size, done = {}, 0, 0
  for part = 1, PARTS do
    local last = ceil(part * n / PARTS)
    if last > done then
      local at = min(max(instant(last) + d, 0), EXACT)
      if size > 0 and list[size - 1] == at then
        list[size] = list[size] + last - done
      else
        list[size + 1], list[size + 2], size = at, last - done, size + 2
      end
    end
    done = last
  end
  return list
end

-- replace makes list the log.
local function replace(v, list, win)
  v.list, v.last, v.window, v.dirty = list, list[#list - 1] or 0, win, true
end

-- shift moves the units of a stored log that come after the first gone by d.
local function shift(v, key, gone, d, win)
  local stored = v.hi - gone
  local all = call('LLEN', key) <= SHORT and call('LRANGE', key, 2, -1)
  local i = 1
  replace(v, parts(stored + v.pended, d, function(u)
    if u > stored then return v.pend_at end
    u = u + gone
    if not all then return (instant_of(v, key, u)) end
    while (tonumber(all[i + 1]) - v.base) % WRAP < u do i = i + 2 end
    return tonumber(all[i])
  end), win)
end

-- shift_list moves the units of a list from number first on by d.
local function shift_list(v, list, first, n, d, win)
  local i, seen = first, 0
  replace(v, parts(n, d, function(u)
    while seen + list[i + 1] < u do i, seen = i + 2, seen + list[i + 1] end
    return list[i]
  end), win)
end

-- listed returns where the units of a list begin that have not expired at an
-- instant, and how many they are.
local function listed(list, edge)
  local first, used = 1, 0
  while list[first] and list[first] <= edge do first = first + 2 end
  for i = first, #list, 2 do used = used + list[i + 1] end
  return first, used
end

-- waits returns retry and reset of an op on a list.
local function waits(list, at, want, cap, win)
  local first, used = listed(list, at - win)
  local retry, reset = 0, 0
  if used > 0 then reset = list[#list - 1] + win - at end
  if want > cap then
    retry = NEVER
  elseif want > cap - used then
    local need = want - (cap - used)
    while need > list[first + 1] do need, first = need - list[first + 1], first + 2 end
    retry = list[first] + win - at
  end
  return retry, reset
end

-- listed_log is sliding_log for a log that is a list.
function listed_log(v, now, cost, want, l)
  local cap, win, below = input[l + 1], input[l + 2], input[l + 5]
  local at, refund, taken = max(v.last, now), cost < 0, 0
  local first, used = listed(v.list, at - win)
  if refund and at > now and below > 0 then
    local by
    cost, by = pay_back(at - now, cost, l)
    shift_list(v, v.list, first, used, -by, win)
    at = max(v.last, now)
    first, used = listed(v.list, at - win)
  end
  local list, ok = v.list, refund or want <= cap - used
  local n = cost
  if not ok then n = cost > 0 and below >= 0 and max(cap - used, 0) or 0 end
  if n > 0 then
    list = {unpack(list, first)}
    list[#list + 1], list[#list + 2] = at, n
    used, first = used + n, 1
    replace(v, list, win)
  elseif n < 0 then
    local back = min(-n, used)
    list, used = {unpack(list, first)}, used - back
    while back > 0 do
      local last = #list
      local some = min(back, list[last])
      back, list[last] = back - some, list[last] - some
      if list[last] == 0 then list[last], list[last - 1] = nil, nil end
    end
    replace(v, list, win)
  end
  if not ok and cost > 0 and below >= 0 then
    local owe = min(cost - n, may_owe(at - now, l))
    taken = n + owe
    if owe > 0 then
      shift_list(v, list, first, used, ceil(owe * input[l + 3] / input[l + 4]), win)
      at = max(v.last, now)
    end
  end
  local retry, reset = waits(v.list, at, want, cap, win)
  return ok, ok and cap - used or taken, retry, reset, at
end

-- sliding_log decides an op on a stored log at an instant. It returns what
-- overflowing does but for the state.
function sliding_log(v, at, k, cost, want, l, number, now)
  local key = keys[k]
  local cap, win, below = input[l + 1], input[l + 2], input[l + 5]
  local refund = cost < 0
  if below >= 0 and not may_owe then overflow_machine() end
  if refund and below > 0 and at > now and v.hi - v.lo + v.pended > 0 then
    local gone = min(max(expired(v, key, at - win), v.lo), v.hi)
    local rest, by = pay_back(at - now, cost, l)
    shift(v, key, gone, -by, win)
    local _, remaining, retry, reset, charged = listed_log(v, max(now, v.last), rest, 1, l)
    return true, remaining, retry, reset, max(charged, now)
  end
  local gone, records = expired(v, key, at - win)
  if gone > v.hi then gone = v.hi end
  if gone < v.lo then gone = v.lo end
  local used = v.hi - gone + v.pended
  local ok, taken, owe = cost < 0 or want <= cap - used, 0, 0
  if not ok and below >= 0 and cost > 0 then
    taken = max(cap - used, 0)
    owe = min(cost - taken, may_owe(at - now, l))
  end
  if ok and cost ~= 0 or taken > 0 then
    local n = ok and cost or taken
    if gone > v.lo then v.lo, v.records = gone, records end
    if n > 0 then
      v.pend, v.pended, v.pend_at = {n, v.pend, number}, v.pended + n, at
      used = used + n
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
  if owe > 0 then
    shift(v, key, gone, ceil(owe * input[l + 3] / input[l + 4]), win)
    at = max(v.last, now)
    local retry, reset = waits(v.list, at, want, cap, win)
    return false, taken + owe, retry, reset, at
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
  if not ok and below >= 0 and cost > 0 then return ok, taken, retry, reset, at end
  return ok, cap - used, retry, reset, at
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

-- commit_parts writes a log that is a list.
local function commit_parts(v, key)
  if v.total > 0 then call('DEL', key) end
  if #v.list == 0 then return end
  local ends = v.last + v.window + MARGIN + floor(v.window / 8) + MARGIN
  local args, unit = {'RPUSH', key, ends, 0}, 0
  for i = 1, #v.list, 2 do
    unit = unit + v.list[i + 1]
    args[#args + 1] = v.list[i]
    args[#args + 1] = unit % WRAP
  end
  call(unpack(args))
  call('PEXPIRE', key, ceil((ends - since) / 1000))
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
  if v.list then
    logs[k] = nil
    return commit_parts(v, keys[k])
  end
  if zset then commit_zset(v, keys[k]) else commit_list(v, keys[k]) end
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

-- moved_log returns the view of log k as it counts for an op at now, which is
-- before its last record, with the limit at l.
function moved_log(k, v, now, l)
  local win, owe = input[l + 2], 0
  if input[l + 5] > 0 then owe = ceil(input[l + 5] * input[l + 3] / input[l + 4]) end
  if v.last - now <= max(win + owe, AHEAD) then return v end
  local used = v.total - expired(v, keys[k], now - win)
  v.hi, v.pend, v.pended, v.pend_at, v.window = 0, {used, nil, 65535}, used, now, win
  commit(k, v)
  return load_log(k)
end

-- refund_list takes n units that were recorded from instant t to instant till out of a
-- list, and moves up the running sums of what has come since. It returns how many it
-- took: none where too much has come since.
local function refund_list(v, key, t, till, n)
  if v.total == 0 or v.first > till or v.last < t then return 0 end
  local from, sum = 1, v.base
  if v.first < t then
    local i, _, _, before = search(v, key, false, t - 1)
    from, sum = i, (v.base + before) % WRAP
  end
  if call('LLEN', key) - 2 * from > MOST then return 0 end
  local tail = call('LRANGE', key, 2 * from, -1)
  local args, taken, last = {'RPUSH', key}, 0, sum
  for i = 1, #tail, 2 do
    local at, c = tonumber(tail[i]), tonumber(tail[i + 1])
    local units = (c - last) % WRAP
    last = c
    local back = at >= t and at <= till and min(units, n - taken) or 0
    taken = taken + back
    if units > back then
      sum = (sum + units - back) % WRAP
      args[#args + 1] = tail[i]
      args[#args + 1] = sum
    end
  end
  if from == 1 and #args == 2 then
    call('DEL', key)
  else
    call('LTRIM', key, 0, 2 * from - 1)
    if #args > 2 then call(unpack(args)) end
  end
  return taken
end

-- refund_zset is refund_list for a zset: units of one instant are as good as
-- each other.
local function refund_zset(key, t, till, n)
  local taken = 0
  while taken < n do
    local r = call('ZRANGEBYSCORE', key, t / 1000, till / 1000, 'LIMIT', 0, min(n - taken, 1000))
    if #r == 0 then break end
    taken = taken + call('ZREM', key, unpack(r))
  end
  return taken
end

-- refund_log gives back n units that were recorded from instant t to instant till, and
-- returns how many of them were still there.
function refund_log(k, t, till, n)
  local taken
  if zset then
    taken = refund_zset(keys[k], t, till, n)
  else
    taken = refund_list(logs[k] or load_log(k), keys[k], t, till, n)
  end
  logs[k] = nil
  return taken
end

-- one_log decides a request of one op, which is on a log: nothing of it is ever
-- taken back.
function one_log(now, p, number)
  local code, cost, l = input[p], input[p + 1], limits + 6 * input[p + 2]
  local k = floor(code / 8)
  local v = logs[k] or load_log(k)
  filled = filled + 1
  if not v then
    out[filled] = 1 + k
    return
  end
  if v.last > now then v = moved_log(k, v, now, l) end
  local at = max(v.last, now)
  local ok, remaining, retry, reset
  ok, remaining, retry, reset, at = sliding_log(v, at, k, cost, max(cost, 1), l, number, now)
  if at > now then retry, reset = late(at - now, retry, reset) end
  if v.dirty then commit(k, v) end
  out[filled] = (ok or code % 2 > 0) and 1 or 0
  answer(now, ok, remaining, retry, reset, at)
end

end

-- Leases of requests in flight: see limit/leases.go, which this mirrors.
local leases -- created when a request first needs it
local lease_machine = function()

-- A zset per key, with three kinds of members:
--   l + holder   a lease; its score is 8 * the millisecond at which it expires, plus
--                how often it was acquired again
--   e + holder   an end that came before its lease; its score is minus the
--                millisecond it is forgotten at
--   r + instant  refusals that are forgotten then; its score is 2^52 and how many
--   s            its score is 2^52 and the amounts of all leases that are reservations
-- The cost of an op is 0 to ask, or else (units + 2^21) + 2^22 * (ending + 8 *
-- its holder's place among the arguments, from 1, or 0). To end an owner's leases
-- with units below -1 is to go on at the instant that comes after the owner.
local HALF, MAX_AGAIN, ENDED_LIFE, MAX_ENDED, PAGE, MAX_MOVED = 2097152, 7, 60000000, 1000, 1000, 1000
local OWNER_SLICE = 1024 -- limit.OwnerSlice
local HI = '(4503599627370496'
local END_ATTEMPT, END_OWNER, END_KNOWN, END_LATE = 1, 2, 3, 4
local L, E, R = 108, 101, 114 -- what members begin with

local function text(x) return string.format('%d', x) end -- much faster than Redis writes a double

-- journal has what must be done to take a request's changes back.
local journal = nil

-- lowest is the least score of a lease that is live at now, and low the same as a bound.
local function lowest(now) return (floor(now / 1000) + 1) * 8 end
local function low(now) return text(lowest(now)) end

-- A view caches what this run knows of a key:
--   n        number of leases that are live at now
--   latest   score of the lease that expires last, nil if unknown
--   sum      amounts of all leases, nil if unknown; summed: flush must write it
--   untidy, ends, refusals   whether there may be expired leases, ends and refusals
--   holder, lease, gone, stored   the last argument and results of find
--   all      members and scores, if they are few and unchanged
--   fresh    the run created the key
--   life     how long the key must exist after since, 0 if the run does not change that
local views = {}

-- view returns the view of a key, or nil if the key has another type.
local function view(k, now)
  local v = views[k]
  if v and v.now == now then return v end
  local all, least = read('ZRANGE', keys[k], '0', '3', 'WITHSCORES'), lowest(now)
  if not all then return nil end
  if not v then
    v = {life = 0, fresh = not all[1]}
    views[k] = v
  end
  v.now, v.n, v.latest, v.untidy, v.ends, v.refusals, v.holder, v.all = now, 0, 0, false, false, false, nil, all
  if #all == 8 then
    local first = tonumber(all[2])
    v.all, v.untidy, v.ends, v.refusals, v.latest = nil, first < least, first < 0, true, nil
    v.n = call('ZCOUNT', keys[k], text(least), HI)
    return v
  end
  local sum = 0
  for i = 2, #all, 2 do
    local score = tonumber(all[i])
    if all[i - 1] == 's' then
      sum = score - EXACT
    elseif score >= EXACT then
      v.refusals = true
    elseif score >= least then
      v.n, v.latest = v.n + 1, score
    else
      v.untidy, v.ends = true, v.ends or score < 0
    end
  end
  v.sum = v.sum or sum
  return v
end

local function count(k, now)
  local v = view(k, now)
  return v and v.n
end

-- amount returns how many units a lease reserves: see limit.Amount.
local function amount(member)
  local hex = string.match(member, '~(%x+)$')
  return hex and #hex <= 14 and min(tonumber(hex, 16), EXACT) or 0
end

-- reserved returns the amounts of all leases, and add_reserved adds to them.
local function reserved(k)
  local v = views[k]
  v.sum = v.sum or tonumber(call('ZSCORE', keys[k], 's') or EXACT) - EXACT
  return v.sum
end

local function add_reserved(k, units)
  if units == 0 then return end
  local v = views[k]
  v.sum, v.summed = reserved(k) + units, true
end

-- set gives a member a score, or takes it away if that is nil. old is the one
-- it has.
local function set(k, member, score, old)
  local units, v, kind = 0, views[k], string.byte(member)
  if kind == L then
    if not old ~= not score then units = amount(member) end
    if score and v.latest and score >= v.latest then
      v.latest = score
    elseif old and old == v.latest then
      v.latest = nil
    end
  end
  v.holder, v.all, v.ends, v.refusals = nil, nil, v.ends or kind == E, v.refusals or kind == R
  if not score then units = -units end
  if journal then journal[#journal + 1] = {k, member, old, units, not score} end
  add_reserved(k, units)
  if score then
    call('ZADD', keys[k], text(score), member)
  else
    call('ZREM', keys[k], member)
  end
end

-- drop removes live leases with these scores.
local function drop(k, list)
  local v = views[k]
  v.n, v.holder, v.all = v.n - #list, nil, nil
  for from = 1, #list, PAGE do
    local names, units = {}, 0
    for i = from, min(from + PAGE - 1, #list) do
      local n = amount(list[i][1])
      names[#names + 1], units = list[i][1], units - n
      if list[i][2] == v.latest then v.latest = nil end
      if journal then journal[#journal + 1] = {k, list[i][1], list[i][2], -n, true} end
    end
    call('ZREM', keys[k], unpack(names))
    add_reserved(k, units)
  end
end

-- keep makes flush extend the key's life to an instant.
local function keep(k, till)
  local v = views[k]
  v.life = max(v.life, till - since)
end

local function expiry(score) return floor(tonumber(score) / 8) * 1000 end

-- over returns the instant at which a member is of no more use.
local function over(member, score)
  local kind = string.sub(member, 1, 1)
  if kind == 'l' then return expiry(score) end
  if kind == 'e' then return -score * 1000 end
  return tonumber(string.sub(member, 2))
end

-- rollback takes back what the request did. A key that was gone meanwhile
-- needs an end again.
local function rollback()
  for i = #journal, 1, -1 do
    local j = journal[i]
    add_reserved(j[1], -j[4])
    if j[3] then
      call('ZADD', keys[j[1]], text(j[3]), j[2])
      keep(j[1], over(j[2], j[3]))
    else
      call('ZREM', keys[j[1]], j[2])
    end
  end
  for _, v in pairs(views) do v.now = nil end
  journal = {}
end

-- score_of returns the score of a member, nil if it is not there.
local function score_of(k, member)
  local all = views[k].all
  if not all then return tonumber(call('ZSCORE', keys[k], member) or nil) end
  for i = 1, #all, 2 do
    if all[i] == member then return tonumber(all[i + 1]) end
  end
end

-- find returns the scores of a holder's lease and end; nil for those that are
-- over.
local function find(k, holder, now)
  local v = view(k, now)
  if v.holder == holder then return v.lease, v.gone, v.stored end
  local lease = (v.n > 0 or v.untidy) and score_of(k, 'l' .. holder) or nil
  local gone = v.ends and score_of(k, 'e' .. holder) or nil
  v.stored = lease
  if lease and floor(lease / 8) * 1000 <= now then lease = nil end
  if gone and -gone * 1000 <= now then gone = nil end
  v.holder, v.lease, v.gone = holder, lease, gone
  return lease, gone, v.stored
end

-- nth returns the live lease that expires as number n, from 0.
local function nth(k, now, n)
  local rank = call('ZCOUNT', keys[k], '-inf', '(' .. low(now)) + n
  return call('ZRANGE', keys[k], rank, rank, 'WITHSCORES')
end

-- latest returns the score of the live lease that expires last, or 0 if no lease is live.
local function latest(k, now)
  local v = view(k, now)
  if not v.latest and v.n > 0 then
    v.latest = tonumber(call('ZREVRANGEBYSCORE', keys[k], HI, low(now), 'WITHSCORES', 'LIMIT', '0', '1')[2])
  end
  return v.latest or 0
end

-- ahead returns how far away the end of a lease or refusal may be that lives
-- for life.
local function ahead(life, l) return life + max(input[l + 2], AHEAD) end

-- move moves the end of leases that expire too late: they expire with those
-- that are granted now. See LeaseSet.moveTo in limit/clock.go.
local far = {} -- by key: move was called
local function move(k, now, l)
  local win, from = input[l + 2], low(now + ahead(input[l + 2], l))
  local till = 8 * ceil((now + win) / 1000)
  local r = call('ZREVRANGEBYSCORE', keys[k], HI, from, 'WITHSCORES', 'LIMIT', 0, MAX_MOVED)
  for i = 1, #r, 2 do
    local score = tonumber(r[i + 1])
    set(k, r[i], till + score % 8, score)
  end
end

-- refusals returns the members for refusals and their numbers, the ones that
-- are forgotten first coming first, and the sum of those that are not over.
local function refusals(k, now)
  local v = view(k, now)
  if not v.refusals then return {}, 0 end
  local r = call('ZRANGEBYSCORE', keys[k], text(EXACT), '+inf', 'WITHSCORES')
  local list, sum = {}, 0
  for i = 1, #r, 2 do
    if r[i] ~= 's' then
      local e = {tonumber(string.sub(r[i], 2)), tonumber(r[i + 1]) - EXACT, r[i]}
      list[#list + 1] = e
      if e[1] > now then sum = sum + e[2] end
    end
  end
  v.refusals = #list > 0
  table.sort(list, function(a, b) return a[1] < b[1] end)
  return list, sum
end

local function add_refusals(k, now, l, n)
  local hold, round = input[l + 3], input[l + 4]
  local till = ceil((now + hold) / round) * round
  local member = 'r' .. text(till)
  local old = score_of(k, member)
  set(k, member, (old or EXACT) + n, old)
  keep(k, till)
end

-- move_refusals does with them what move does with leases.
local function move_refusals(k, now, l)
  local most, n = now + ahead(input[l + 3], l), 0
  local list = refusals(k, now)
  for i = 1, #list do
    local e = list[i]
    if e[1] > most then
      set(k, e[3], nil, EXACT + e[2])
      n = n + e[2]
    end
  end
  if n > 0 and input[l + 3] > 0 then add_refusals(k, now, l, n) end
  return list
end

local function remember(k, now, l)
  if full then return end
  local list = move_refusals(k, now, l)
  for i = 1, #list do
    if list[i][1] <= now then call('ZREM', keys[k], list[i][3]) end
  end
  views[k].all = nil
  add_refusals(k, now, l, 1)
end

-- forgive drops up to n refusals and returns how many.
local function forgive(k, now, n)
  local list, dropped = refusals(k, now), 0
  for i = 1, #list do
    local e = list[i]
    local d = e[1] > now and min(e[2], n - dropped) or 0
    if d > 0 then
      set(k, e[3], e[2] > d and EXACT + e[2] - d or nil, EXACT + e[2])
      dropped = dropped + d
    end
  end
  return dropped
end

-- tidy drops some of what has expired.
local function tidy(k, now)
  local v = view(k, now)
  if not v.untidy then return false end
  local r = call('ZRANGEBYSCORE', keys[k], '0', '(' .. low(now), 'LIMIT', '0', text(PAGE))
  v.untidy, v.holder, v.all = #r == PAGE, nil, nil
  if #r == 0 then return false end
  call('ZREM', keys[k], unpack(r))
  local units = 0
  for i = 1, #r do units = units - amount(r[i]) end
  add_reserved(k, units)
  return #r == PAGE
end

-- renew moves the end of a lease away that has been acquired again n times.
local function renew(k, holder, now, l, n, lease)
  local till = ceil((now + input[l + 2]) / 1000)
  set(k, 'l' .. holder, max(till * 8 + n, lease - lease % 8 + n), lease)
  keep(k, till * 1000)
end

local function note_end(k, holder, now, gone)
  call('ZREMRANGEBYSCORE', keys[k], text(-floor(now / 1000)), '(0')
  views[k].all = nil
  local till = ceil((now + ENDED_LIFE) / 1000)
  set(k, 'e' .. holder, -till, gone)
  if call('ZCOUNT', keys[k], '-inf', '(0') > MAX_ENDED
    and call('ZREMRANGEBYSCORE', keys[k], '-inf', '(' .. text(-floor((now + 2 * ENDED_LIFE) / 1000))) == 0 then
    call('ZREM', keys[k], unpack(call('ZREVRANGEBYSCORE', keys[k], '(0', '-inf', 'LIMIT', 0, 1)))
  end
  keep(k, till * 1000)
end

local function end_any(k, now, n, l)
  move_refusals(k, now, l)
  local _, sum = refusals(k, now)
  n = min(n, sum + count(k, now))
  local left = n - forgive(k, now, n)
  while left > 0 do
    local r, first = call('ZRANGEBYSCORE', keys[k], low(now), HI, 'WITHSCORES', 'LIMIT', '0', text(min(left, PAGE))), {}
    for i = 1, #r, 2 do first[#first + 1] = {r[i], tonumber(r[i + 1])} end
    drop(k, first)
    left = left - #first
  end
  return n > 0
end

-- end_late ends the first leases that expire within so many milliseconds.
local function end_late(k, now, ms)
  local r = call('ZRANGEBYSCORE', keys[k], low(now), text(floor((now + ms * 1000) / 1000) * 8 + 7), 'WITHSCORES', 'LIMIT', 0, OWNER_SLICE)
  local list = {}
  for i = 1, #r, 2 do list[#list + 1] = {r[i], tonumber(r[i + 1])} end
  drop(k, list)
  return #list > 0
end

-- end_owner ends an owner's leases among the next OWNER_SLICE that expire at an
-- instant or later. It returns whether there was any, and when the first lease
-- expires that it has not looked at, or 0.
local function end_owner(k, now, owner, from)
  local least = text(max(ceil(from / 1000), floor(now / 1000) + 1) * 8)
  local rank = call('ZCOUNT', keys[k], '-inf', '(' .. least)
  local mine, seen, last, rest, more = {}, 0, nil, 0, true
  while more do
    local r = call('ZRANGE', keys[k], rank, rank + PAGE - 1, 'WITHSCORES')
    more, rank = #r == 2 * PAGE, rank + PAGE
    for i = 1, #r, 2 do
      local score = tonumber(r[i + 1])
      local ends = expiry(score)
      if score >= EXACT or seen >= OWNER_SLICE and ends ~= last then
        if score < EXACT then rest = ends end
        more = false
        break
      end
      seen, last = seen + 1, ends
      if string.sub(r[i], 2, 1 + #owner) == owner then mine[#mine + 1] = {r[i], score} end
    end
  end
  drop(k, mine)
  return #mine > 0, rest
end

-- give_back ends what an op of negative cost says and returns whether there was
-- any. quiet: an end that finds nothing is not remembered.
local function give_back(k, now, l, units, ending, holder, quiet)
  if holder == '' then return end_any(k, now, -units, l) end
  local n = count(k, now)
  local lease, gone = find(k, holder, now)
  if not lease then
    if not quiet and ending ~= END_KNOWN then note_end(k, holder, now, gone) end
  elseif ending == END_ATTEMPT and lease % 8 > 0 then
    set(k, 'l' .. holder, lease - 1, lease)
  else
    set(k, 'l' .. holder, nil, lease)
    views[k].n = n - 1
  end
  return lease ~= nil
end

local function parts(cost)
  if cost == 0 then return 0, 0, '' end
  local units = cost % (2 * HALF)
  local rest = (cost - units) / (2 * HALF)
  local ending = rest % 8
  local place = (rest - ending) / 8
  return units - HALF, ending, place > 0 and ARGV[2 + place] or '', place
end

local m = {}

-- take decides an op alone and records it. Its outcome goes into op, where OK
-- and what follows it are as for other ops; then what is in flight, and whether
-- its holder had its lease.
function m.take(op, now, cost, again, OK)
  local k, l = op[2], op[5]
  local cap = input[l + 1]
  local units, ending, holder, place = parts(cost)
  local ok, held, gone, changed = false, false, false, false
  local lease, ended, stored, rest
  if units < 0 and ending == END_OWNER and holder ~= '' then
    ok, changed = true, true
    held, rest = end_owner(k, now, holder, units < -1 and tonumber(ARGV[3 + place]) or 0)
  elseif units < 0 and ending == END_LATE then
    ok, changed = true, true
    held = end_late(k, now, -units)
  elseif units < 0 then
    ok, changed = true, true
    held = give_back(k, now, l, units, ending, holder, false)
  elseif units == 0 and holder == '' then
    ok = count(k, now) < cap
  else
    local n = count(k, now)
    lease, ended, stored = find(k, holder, now)
    if lease then
      ok, held, changed = true, true, true
      local n = lease % 8
      if units == 0 then n = MAX_AGAIN elseif again then n = min(n + 1, MAX_AGAIN) end
      renew(k, holder, now, l, n, lease)
    elseif units == 0 or ended then
      gone = true
    elseif n < cap then
      local till = ceil((now + input[l + 2]) / 1000)
      set(k, 'l' .. holder, till * 8, stored)
      keep(k, till * 1000)
      views[k].n = n + 1
      ok, changed = true, true
    elseif input[l + 3] > 0 then
      remember(k, now, l)
      changed = true
    end
  end
  if changed then tidy(k, now) end
  local n = count(k, now)
  local in_flight, retry, reset = n, 0, 0
  if not ok or units == 0 then
    local _, sum = refusals(k, now)
    in_flight = n + sum
    if not ok and units > 0 and (input[l + 3] == 0 or gone) then in_flight = in_flight + 1 end
  end
  if n > 0 then
    reset = expiry(latest(k, now)) - now
    if units > 0 and reset > ahead(input[l + 2], l) then
      far[k] = true
      move(k, now, l)
      reset = expiry(latest(k, now)) - now
    end
  end
  if cap == 0 or gone then
    retry = NEVER
  elseif n >= cap then
    retry = expiry(nth(k, now, n - cap)[2]) - now
  end
  if rest then retry = max(rest - now, 0) end
  op[OK], op[OK + 1], op[OK + 2], op[OK + 3], op[OK + 4] = ok, cap - n, retry, reset, now
  op[OK + 5], op[OK + 6] = in_flight, held
  return ok
end

m.count, m.rollback, m.amount = count, rollback, amount

-- reserved returns how many units the live leases reserve.
function m.reserved(k, now)
  while tidy(k, now) do end
  return reserved(k)
end

-- ended lists the leases under a key that the request has ended: member and score.
function m.ended(k)
  local list = {}
  for i = 1, #journal do
    local j = journal[i]
    if j[1] == k and j[3] and j[5] and string.sub(j[2], 1, 1) == 'l' then list[#list + 1] = {j[2], j[3]} end
  end
  return list
end

-- granted returns between which instants a lease with this score was granted, by the
-- limit at l; nothing if it was renewed.
function m.granted(score, l)
  if score % 8 == MAX_AGAIN then return 0, -1 end
  local at = expiry(score) - input[l + 2]
  return at - 999, at
end

-- common decides a request of kind 4 if its lease is new, or exists and ends. Otherwise it
-- returns false and writes nothing.
function m.common(now, n, p, settling)
  local place = p
  while input[limits + 6 * input[place + 2]] ~= LEASE do place = place + 3 end
  local l, k = limits + 6 * input[place + 2], floor(input[place] / 8)
  local cap, units, ending, holder = input[l + 1], parts(input[place + 1])
  local v = view(k, now)
  if not v or v.untidy or v.n + units >= cap or v.refusals and #refusals(k, now) > 0 then return false end
  local member, score, gone = 'l' .. holder, nil, nil
  if holder ~= '' then
    score, gone = find(k, holder, now)
  elseif units == -1 and v.n > 0 and not v.ends then
    local first = v.all or call('ZRANGE', keys[k], '0', '0', 'WITHSCORES')
    member, score = first[1], tonumber(first[2])
  end
  local till
  if units == 1 then
    till = ceil((now + input[l + 2]) / 1000)
    if score or gone or max(expiry(latest(k, now)), till * 1000) - now > ahead(input[l + 2], l) then return false end
  elseif units ~= -1 or not score or ending == END_OWNER or ending == END_LATE or ending == END_ATTEMPT and score % 8 > 0 then
    return false
  end
  local status, lease, changes = filled + 1, nil, 0
  filled = status
  for i = p, p + 3 * n - 3, 3 do
    if i == place then
      lease, filled = filled, filled + (settling and 4 or 3)
    else
      local code, cost, l = floor(input[i] / 8), input[i + 1], limits + 6 * input[i + 2]
      local key = code % HELD_BACK
      local held, s = code - key, states[key] or load_state(key, input[l])
      if not s or s[1] > now or held > 0 and held ~= k * HELD_BACK then
        filled = status - 1
        return false
      end
      local old = s
      if held > 0 then s = held_back(s, now, reserved(k), l) end
      if settling then
        local from = input[p + 3 * n + (i - p) / 3]
        local till = from
        if from < 0 then from, till = m.granted(score, input[place + 2] * 6 + limits) end
        cost = due(s, now, from, till, max(cost, 0) - amount(member), l)
      end
      local ok, remaining, retry, reset, after, at = charge(now, s, cost, l)
      if at ~= now or not ok and (cost ~= 0 or not settling) then
        filled = status - 1
        return false
      end
      s = after or s
      if s ~= old then changed[changes + 1], changed[changes + 2], changes = key, s, changes + 2 end
      if settling then
        out[filled + 1], out[filled + 2], out[filled + 3], filled = cost, max(remaining, 0), reset, filled + 3
      else
        answer(now, ok, remaining, retry, reset, now)
      end
    end
  end
  for i = 1, changes, 2 do states[changed[i]] = changed[i + 1] end
  set(k, member, till and till * 8, score)
  if till then keep(k, till * 1000) end
  v.n = v.n + units
  out[status], out[lease + 1], out[lease + 2] = 1, cap - v.n, v.n > 0 and expiry(latest(k, now)) - now or 0
  out[lease + 3] = 2 * v.n + (till and 0 or 1)
  if settling then out[lease + 4] = 1 end
  return true
end

function m.holder(cost) return select(3, parts(cost)) end
function m.begin() journal, far = {}, {} end
function m.commit() journal = nil end

-- flush writes the deferred changes of a view. Keys get an eighth of their life more, so that few calls must extend it.
function m.flush(k)
  local v = views[k]
  if not v then return end
  if v.summed and v.sum > 0 then
    call('ZADD', keys[k], text(EXACT + v.sum), 's')
  elseif v.summed then
    call('ZREM', keys[k], 's')
  end
  local ms = ceil((v.life + MARGIN) / 1000)
  if v.life > 0 and (v.fresh or call('PTTL', keys[k]) < ms) then call('PEXPIRE', keys[k], text(ms + floor(ms / 8))) end
end

-- repeated says whether an op is an acquire that was granted before.
function m.repeated(op, now)
  local units, _, holder = parts(op[4])
  return units > 0 and find(op[2], holder, now) ~= nil
end

-- refused remembers an op without room whose request left no other trace.
function m.refused(op, now)
  local units, _, holder = parts(op[4])
  if units > 0 and far[op[2]] then move(op[2], now, op[5]) end
  if units > 0 and input[op[5] + 3] > 0 then
    local lease, ended = find(op[2], holder, now)
    if not ended then
      remember(op[2], now, op[5])
      tidy(op[2], now)
    end
  end
end

function m.gives(cost) return (parts(cost)) < 0 end

-- refund gives back an acquire, and returns whether that ended its lease: not if
-- it was acquired again.
function m.refund(op, now)
  local _, _, holder = parts(op[4])
  local lease = find(op[2], holder, now)
  give_back(op[2], now, op[5], -1, END_ATTEMPT, holder, true)
  return lease and lease % 8 == 0
end

return m

end

-- All other requests: those of logs, of leases, of ops that share a key, and
-- refunds. An op is an array of bits, key, number, cost, the place of its limit,
-- then its outcome.
local function many_machine()

local OK, REMAINING, RETRY, RESET, AT, IN_FLIGHT, HELD = 6, 7, 8, 9, 10, 11, 12

local function load(l, k, now)
  local algorithm = input[l]
  if algorithm == LEASE then
    leases = leases or lease_machine()
    return leases.count(k, now)
  end
  if algorithm ~= LOG then
    local s = states[k] or load_state(k, algorithm)
    return s and s[1] > now and moved(k, s, now, l) or s
  end
  if not load_log then log_machine() end
  local v = logs[k] or load_log(k)
  return v and v.last > now and moved_log(k, v, now, l) or v
end

-- take decides op alone at instant now, for cost, and records it. again says
-- that an acquire whose lease is there is a repetition.
local function take(op, now, cost, again)
  local k, l = op[2], op[5]
  if input[l] == LEASE then return leases.take(op, now, cost, again, OK) end
  local ok, remaining, retry, reset, at
  if input[l] == LOG then
    local v = logs[k]
    if v.list then
      if not may_owe then overflow_machine() end
      ok, remaining, retry, reset, at = listed_log(v, now, cost, max(cost, 1), l)
    else
      at = max(v.pend and v.pend_at or v.last, now)
      ok, remaining, retry, reset, at = sliding_log(v, at, k, cost, max(cost, 1), l, op[3], now)
    end
  else
    local s, after = states[k]
    ok, remaining, retry, reset, after, at = charge(now, s, cost, l)
    if after then states[k] = after end
  end
  if at > now then retry, reset = late(at - now, retry, reset) end
  op[OK], op[REMAINING], op[RETRY], op[RESET], op[AT] = ok, remaining, retry, reset, at
  return ok
end

-- ask corrects the outcome of an op that is not recorded: what is left is
-- what there is without it. An op that had room need not wait; one that gives
-- back is about a single unit.
local function ask(op, now, had_room, gives)
  local retry, in_flight, held = op[RETRY], op[IN_FLIGHT], op[HELD]
  take(op, now, 0)
  op[OK], op[HELD] = had_room, held
  if not had_room then
    op[RETRY], op[IN_FLIGHT] = retry, in_flight or op[IN_FLIGHT]
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

local function gives(op)
  if input[op[5]] == LEASE then return leases.gives(op[4]) end
  return op[4] < 0
end

-- refuse records what a refused request still charges and corrects the
-- outcomes of the others.
local function refuse(ops, now)
  local over = {} -- keys under which an op had no room and takes something all the same
  for i = 1, #ops do
    local op = ops[i]
    if not op[OK] and input[op[5] + 5] >= 0 and op[4] > 0 then over[op[2]] = true end
  end
  local asks = {}
  for i = 1, #ops do
    local op = ops[i]
    if op[1] % 4 > 1 or op[4] > 0 and over[op[2]] then
      take(op, now, op[4])
    else
      asks[#asks + 1] = op
    end
  end
  for i = 1, #asks do
    local op = asks[i]
    ask(op, now, op[OK], gives(op))
  end
end

-- refund gives back the units that an op took, as of an instant: for counters
-- the end of the window that they were taken in, for a bucket when it would have
-- been full if they had not been, for a log when they were recorded. It returns
-- whether all of them were worth giving back. What has ended since, or would have
-- come back by itself, is not there any more: others have got it.
local function refund(op, now, as_of)
  local k, units, l = op[2], op[4], op[5]
  if input[l] == LOG then return refund_log(k, as_of, as_of, units) == units end
  local s = states[k]
  local at = max(s[1], now)
  local gone = at - as_of
  if input[l] ~= BUCKET and gone >= 0 then return false end
  if input[l] == BUCKET and gone > 0 then
    local num, lost = input[l + 3], gone * input[l + 4]
    if s[3] ~= num or lost >= units * num then return false end
    s = {s[1], s[2] - lost, num, s[4], s[5], false} -- first: a full bucket takes no units
  end
  states[k] = select(5, charge(now, s, -units, l))
  return gone <= 0
end

-- give_back gives back what ops took, and returns whether that is all. What was
-- charged together with a lease is charged for all who have acquired the lease.
local function give_back(ops, now, as_of)
  local all = true
  for i = 1, #ops do
    if input[ops[i][5]] == LEASE then all = leases.refund(ops[i], now) and all end
  end
  if not all then return false end
  for i = 1, #ops do
    if input[ops[i][5]] ~= LEASE then all = refund(ops[i], now, as_of[i]) and all end
  end
  return all
end

-- remember has refusals count for their limit's hold.
local function remember(ops, now)
  for i = 1, #ops do
    local op = ops[i]
    if input[op[5]] == LEASE and not op[OK] then leases.refused(op, now) end
  end
end

-- repeated says whether one of the ops is an acquire that was granted before:
-- then all of the request was, and is not charged again.
local function repeated(ops, now)
  for i = 1, #ops do
    if input[ops[i][5]] == LEASE and leases.repeated(ops[i], now) then return true end
  end
  return false
end

local function decide_repeated(ops, now)
  for i = 1, #ops do
    local op = ops[i]
    local mine = input[op[5]] == LEASE and leases.repeated(op, now)
    take(op, now, mine and op[4] or 0, true)
    op[OK], op[RETRY] = true, 0
  end
  return true
end

local function hold_back(ops, now)
  for i = 1, #ops do
    local op = ops[i]
    local k, held = op[2], op[13]
    if held > 0 then states[k] = held_back(states[k], now, leases.reserved(held, now), op[5]) end
  end
end

-- unrecord takes units out of a log: see limit/settle.go.
local function unrecord(op, now, from, till, units)
  local k = op[2]
  local v = logs[k]
  if v.dirty then
    commit(k, v)
    v = logs[k] or load_log(k)
  end
  if v.last > now then return 0 end
  local given = refund_log(k, from, till, units)
  load_log(k)
  return given
end

-- correct charges units, or gives -units back: see limit/settle.go.
local function correct(op, now, from, till, units)
  local l = op[5]
  if units < 0 and input[l] == LOG then
    return till >= from and from > 0 and -unrecord(op, now, from, till, -units) or 0
  end
  units = due(states[op[2]], now, from, till, units, l)
  if units == 0 then return 0 end
  if take(op, now, units) then return units end
  return input[l + 5] >= 0 and op[REMAINING] or 0
end

-- settle ends reservations and corrects what they have charged. A lone op gives back.
local function settle(ops, now, as_of)
  local lease = ops[1]
  if #ops == 1 then
    lease.taken = correct(lease, now, as_of[1], as_of[1], lease[4])
    return take(lease, now, 0)
  end
  hold_back(ops, now)
  leases.begin()
  take(lease, now, lease[4], false)
  local ended = leases.ended(lease[2])
  leases.commit()
  lease.ended = #ended
  for i = 2, #ops do
    local op, taken = ops[i], 0
    for j = 1, #ended do
      local from, till = as_of[i], as_of[i]
      if from < 0 then from, till = leases.granted(ended[j][2], lease[5]) end
      taken = taken + correct(op, now, from, till, (j == 1 and max(op[4], 0) or 0) - leases.amount(ended[j][1]))
    end
    if #ended == 0 and leases.holder(lease[4]) == '' then taken = correct(op, now, 0, -1, max(op[4], 0)) end
    take(op, now, 0)
    op.taken = taken
  end
end

local function decide(ops, now)
  local admitted, old_states, old_logs = true, {}, {}
  if leases then leases.begin() end
  for i = 1, #ops do
    local k = ops[i][2]
    if not old_states[k] and not old_logs[k] then
      old_states[k], old_logs[k] = states[k], copy(logs[k]) -- views are changed in place
    end
  end
  hold_back(ops, now)
  for i = 1, #ops do
    local op = ops[i]
    if not take(op, now, op[4], false) and op[1] % 2 < 1 then admitted = false end
  end
  if not admitted then
    if leases then leases.rollback() end
    for k, s in pairs(old_states) do states[k] = s end
    for k, v in pairs(old_logs) do logs[k] = v end
    if leases then remember(ops, now) end
    refuse(ops, now)
  end
  if leases then leases.commit() end
  return admitted
end

-- decide_one is decide for a request of one op, of which nothing is ever
-- taken back.
local function decide_one(ops, now)
  return take(ops[1], now, ops[1][4], true) or ops[1][1] % 2 > 0
end

return function(now, n, p, number, refunding, settling)
  local ops = {}
  for i = 1, n do
    local code, l = input[p], limits + 6 * input[p + 2]
    local bits, k = code % 8, floor(code / 8) % HELD_BACK
    ops[i] = {bits, k, number + i, input[p + 1], l, false, 0, 0, 0, 0, nil, nil, floor(code / 8 / HELD_BACK)}
    p = p + 3
  end
  for i = 1, n do
    -- A refund moves nothing to its instant, which is past.
    local at = refunding and input[ops[i][5]] ~= LEASE and EXACT or now
    if not load(ops[i][5], ops[i][2], at) then
      filled = filled + 1
      out[filled] = 1 + ops[i][2]
      return
    end
  end
  if refunding then
    filled = filled + 1
    out[filled] = give_back(ops, now, {unpack(input, p, p + n - 1)}) and 1 or 0
    return
  end
  local admitted = false
  if settling then
    settle(ops, now, {unpack(input, p, p + n - 1)})
    admitted = true
  elseif leases and repeated(ops, now) then
    admitted = decide_repeated(ops, now)
  elseif n == 1 then
    admitted = decide_one(ops, now)
  else
    admitted = decide(ops, now)
  end
  filled = filled + 1
  out[filled] = admitted and 1 or 0
  for i = 1, n do
    local op = ops[i]
    local v = logs[op[2]]
    if v and v.dirty then commit(op[2], v) end
    if op.taken then
      out[filled + 1], out[filled + 2], out[filled + 3], filled = op.taken, max(op[REMAINING], 0), op[RESET], filled + 3
    else
      answer(now, op[OK], op[REMAINING], op[RETRY], op[RESET], op[AT])
    end
    if op[IN_FLIGHT] then
      filled = filled + 1
      out[filled] = 2 * op[IN_FLIGHT] + (op[HELD] and 1 or 0)
    end
    if op.ended then
      filled = filled + 1
      out[filled] = op.ended
    end
  end
end

end

local others
local p, number = 4, 0
for _ = 1, input[2] do
  local now, shape = input[p], input[p + 1]
  local kind = shape % 8
  local n, common = (shape - kind) / 8, kind > 3
  kind = kind % 4
  if now < 0 then now = clock end
  -- Injected instants run at a pace of their own: keys live to the later of
  -- their end by those and by the server's clock.
  since = now < precise and now or precise
  if kind == 1 then
    simple(now, n, p + 2)
  elseif kind == 0 and n == 1 and input[limits + 6 * input[p + 4]] == LOG then
    if not one_log then log_machine() end
    one_log(now, p + 2, number + 1)
  else
    if common then
      leases = leases or lease_machine()
      common = leases.common(now, n, p + 2, kind == 3)
    end
    if not common then
      others = others or many_machine()
      others(now, n, p + 2, number, kind == 2, kind == 3)
    end
  end
  number = number + n
  p = p + 2 + (kind > 1 and 4 or 3) * n
end

-- write stores the state of key k. One that lives long enough is written over
-- where it is, which costs a third; but not if it is of no use any more, so
-- that a Ping, which writes such a state, tries the command that all depends on.
local function write(k, s)
  local life, tag = s[6] + MARGIN, s[5]
  if s[4] == 1 and tag == FIXED and s[6] > 0 and s[6] <= NEAR and math.abs(s[1] - precise) <= NEAR
      and s[1] % 1000000 == 0 and s[2] < UNITS / 2 and s[3] == 0 then
    local number = string.format('%d%010d', FIRST + s[1] / 1000000 % STARTS, s[2])
    call('SET', keys[k], number, 'PX', ceil((life + MARGIN) / 1000))
    return
  end
  if s[6] > 0 and precise + life <= s[4] * 1000000 then
    local r = pcall_('SETRANGE', keys[k], '0', pack('<BI7ddI4', tag, s[1], s[2], s[3], s[4]))
    if type(r) == 'number' then return end
  end
  -- In advance, so that few takes must move the key's end.
  life = life + MARGIN + (tag == BUCKET and floor(s[6] / 8) or 0)
  local lives = min(floor((precise + life) / 1000000), 4294967295)
  call('SET', keys[k], pack('<BI7ddI4', tag, s[1], s[2], s[3], lives), 'PX', ceil(life / 1000))
end

-- A server that is full rejects a script's first write if it may need memory, but no write after
-- that. So a first write that needs none has the states be written that are there already. unlock
-- leaves out those that would be new, and returns whether there are both.
local function unlock()
  local first, new = nil, {}
  for k = 1, #keys do
    local s = states[k]
    if s and s[6] then
      if s[4] == 0 then new[#new + 1] = s else first = first or k end
    end
  end
  if not first then return false end
  local s = states[first]
  pcall_('PEXPIRE', keys[first], max(s[4] * 1000 - floor(precise / 1000), ceil(s[6] / 1000), 1))
  for i = 1, #new do new[i][6] = false end
  return #new > 0
end

local partly = full and unlock()
for k = 1, #keys do
  local s = states[k]
  if s and s[6] then write(k, s) end
  if leases then leases.flush(k) end
end
if partly and out[2] == 1 then out[2], filled = -1, 2 end -- what has no room refuses nothing
return encode(out, filled)

end -- of general

-- Here the run begins.

local unpack_, pack, rep = struct.unpack, struct.pack, string.rep
local call, pcall_ = redis.call, redis.pcall
local floor, ceil, min, max = math.floor, math.ceil, math.min, math.max
local keys, blob = KEYS, ARGV[1]
local NEVER, EXACT, MARGIN, MOST = -1, 4503599627370496, 1000000, 4000 -- as in general
local FIRST, STARTS, UNITS, NEAR = 100000000, 800000000, 10000000000, 100000000000000 -- as in general
local FIXED, BUCKET = 1, 4

local size, input = #blob / 8, {}
if size <= MOST then
  input = {unpack_('<' .. rep('d', size), blob)}
else
  for from = 0, size - 1, MOST do
    local count = MOST < size - from and MOST or size - from
    local part = {unpack_('<' .. rep('d', count), blob, 8 * from + 1)}
    for i = 1, count do input[from + i] = part[i] end
  end
end
local time = call('TIME')
local precise = time[1] * 1000000 + time[2]
local clock = input[1] % 2 == 1 and precise - precise % 1000 or precise

-- The straight path decides a slice of simple requests as general does. Where it meets
-- anything else, such as a key of another type or a clock that has stepped back, it has
-- written nothing, and general decides. others says that some limits are no fixed
-- windows. The state of key k, which general calls s, begins at 5 * k of the list s here:
-- its tag (0 may be an unused key), then at, n, m, and the second until which it lives.

local n, others, numbered = #keys, input[1] % 8 >= 4, input[1] % 16 >= 8
if input[1] % 8 < 2 or input[1] >= 16 or n * 5 > MOST or size > MOST then return general(input, size, clock, precise) end
local limits = size - 6 * input[3] + 1 -- where the first limit is
local stored = n > 1 and pcall_('MGET', unpack(keys)) or {pcall_('GET', keys[1])}
if stored.err then return general(input, size, clock, precise) end
local s, numbers = {0, 0, 0, 0}, {} -- of windows that are numbers: at i the units, at i + 1 the start
local second = floor(precise / 1000000)
for k = 1, n do
  local i, raw = 5 * k, stored[k] or n > 1 and pcall_('GET', keys[k])
  if not raw then
    s[i], s[i + 1], s[i + 2], s[i + 3], s[i + 4] = others and 0 or FIXED, 0, 0, 0, 0
  elseif #raw == 28 then -- an error has no length
    local tag, at, used, m, till = unpack_('<BI7ddI4', raw)
    if tag == 0 or not others and tag ~= FIXED then return general(input, size, clock, precise) end
    if not (at >= 0 and used >= 0 and m >= 0 and at <= EXACT and used <= EXACT and m <= EXACT) then return general(input, size, clock, precise) end
    s[i], s[i + 1], s[i + 2], s[i + 3], s[i + 4] = tag, at, used, m, till
  elseif #raw == 19 then -- as in load_state
    local start, units = tonumber(raw:sub(1, 9)), tonumber(raw:sub(10))
    if not (start and units and start >= FIRST and start < FIRST + STARTS and start % 1 == 0 and units >= 0) then return general(input, size, clock, precise) end
    local at = (second + (start - FIRST - second + STARTS / 2) % STARTS - STARTS / 2) * 1000000
    numbers[i], numbers[i + 1] = units, at
    s[i], s[i + 1], s[i + 2], s[i + 3], s[i + 4] = FIXED, at, units, 0, 0
  else
    return general(input, size, clock, precise)
  end
end

-- other decides an op of another algorithm as sliding_window and token_bucket
-- do. It returns whether there is room, what remains, retry and reset; and, if
-- there is something to record, the state, and the instant until which it is of
-- use.
local other
if others then
  function other(k, now, cost, l)
    local cap, win, one, two = input[l + 1], input[l + 2], input[l + 3], input[l + 4]
    local at, cur, prev = s[k + 1], s[k + 2], s[k + 3]
    local want, retry, reset = cost > 1 and cost or 1, 0, 0
    if input[l] == BUCKET then
      local full, level = cap * one, cur
      if prev <= 0 then
        level = full
      else
        if prev ~= one then level = min(floor(level / prev), cap) * one end
        if level > full then level = full end
        if now - at < floor((full - level + two - 1) / two) then level = level + (now - at) * two else level = full end
      end
      local ok = cost < 0 or want <= floor(level / one)
      local records = ok and cost ~= 0
      if records and cost > 0 then
        level = level - cost * one
      elseif records then
        level = level + min(min(-cost, cap) * one, full - level)
      end
      reset = floor((full - level + two - 1) / two)
      if want > cap then
        retry = NEVER
      elseif want * one > level then
        retry = floor((want * one - level + two - 1) / two)
      end
      return ok, floor(level / one), retry, reset, records and now, level, one, now + reset
    end
    local start = now - now % win
    if at < start then
      cur, prev = 0, at < start - win and 0 or cur
    end
    local rest = start + win - now
    local share = two - floor((win - rest) / one) -- of two: how much of prev counts
    local weighted = floor((min(prev, 4294967296) * share + two - 1) / two)
    local ok = cost < 0 or want <= cap - min(cur + weighted, EXACT)
    local records = ok and cost ~= 0
    if records and cost > 0 then
      cur = cur + cost
    elseif records then
      local back = min(-cost, cur + prev)
      local from = min(back, cur)
      cur, prev = cur - from, prev - (back - from)
      weighted = floor((min(prev, 4294967296) * share + two - 1) / two)
    end
    if cur > 0 then
      reset = rest + win
    elseif prev > 0 then
      reset = rest
    end
    if want > cap then
      retry = NEVER
    elseif want > cap - cur - weighted then
      local room, count, wait = cap - want - cur, prev, rest
      if room < 0 then room, count, wait = cap - want, cur, rest + win end
      if count > 4294967296 then count = 4294967296 end
      retry = wait - (count <= room and win or max(win - (two - floor(room * two / count)) * one, 0))
    end
    return ok, cap - cur - weighted, retry, reset, records and start, cur, prev, start + (cur > 0 and 2 * win or win)
  end
end

local out, filled, lives = {clock}, 1, {unpack(keys)} -- by key: its life, or itself if it has not changed
local alone, injected = {}, false -- keys that are charged by themselves; some request brings its instant
local changed, thirds = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, {} -- by the request: in fours a place, at, n, and a life; m
local p = 4
for _ = 1, input[2] do
  local now, shape = input[p], input[p + 1]
  if now < 0 then now = clock else injected = true end
  local since = now < precise and now or precise
  local from, to = p + 2, p + (shape - 1) / 8 * 3 - 1
  local status, admitted, changes = filled + 1, true, 0
  filled = status
  for i = from, to, 3 do
    local code, cost, l = input[i], input[i + 1], limits + 6 * input[i + 2]
    local bits = code % 8
    local k = (code - bits) / 8 * 5
    local at, used = s[k + 1], s[k + 2]
    if at > now then return general(input, size, clock, precise) end
    if bits % 4 > 1 or from == to then alone[k] = numbered end
    if others and s[k] ~= input[l] then
      if s[k] ~= 0 then return general(input, size, clock, precise) end
      s[k] = input[l]
    end
    if others and input[l] ~= FIXED then
      local ok, left, retry, rest, at, n, m, ends = other(k, now, cost, l)
      if at then
        thirds[changes + 1] = m
        changed[changes + 1], changed[changes + 2], changed[changes + 3], changed[changes + 4] = k, at, n, ends - since
        changes = changes + 4
      end
      if not ok and bits % 2 < 1 then admitted = false end
      if left < 0 then left = 0 end
      out[filled + 1] = ok and left or -1 - left
      if retry == 0 then
        out[filled + 2], filled = rest, filled + 2
      else
        out[filled + 2], out[filled + 3], out[filled + 4], filled = -1 - rest, retry, now, filled + 4
      end
    else
      local cap, win = input[l + 1], input[l + 2]
      local start = now - now % win
      if at < start then used = 0 end
      local want, rest = cost > 1 and cost or 1, start + win - now
      local left = cap - used
      if cost < 0 or want <= left then
        if cost ~= 0 then
          used = used + cost
          if used < 0 then used = 0 end
          if from == to then -- alone: it is admitted
            s[k + 1], s[k + 2], lives[k / 5] = start, used, start + win - since
          else
            if others then thirds[changes + 1] = s[k + 3] end
            changed[changes + 1], changed[changes + 2], changed[changes + 3], changed[changes + 4] = k, start, used, start + win - since
            changes = changes + 4
          end
          left = cap - used
        end
        out[filled + 1] = left < 0 and 0 or left
        if want <= left then
          out[filled + 2], filled = rest, filled + 2
        else
          out[filled + 2], out[filled + 3], out[filled + 4], filled = -1 - rest, want > cap and NEVER or rest, now, filled + 4
        end
      else
        if bits % 2 < 1 then admitted = false end
        if left < 0 then left = 0 end
        if left > 0 and input[l + 5] == 0 then -- it takes what there is
          if others then thirds[changes + 1] = s[k + 3] end
          changed[changes + 1], changed[changes + 2], changed[changes + 3], changed[changes + 4] = k, start, cap, start + win - since
          changes = changes + 4
        end
        out[filled + 1], out[filled + 2], out[filled + 3], out[filled + 4], filled = -1 - left, -1 - rest, want > cap and NEVER or rest, now, filled + 4
      end
    end
  end
  out[status] = admitted and 1 or 0
  if not admitted then filled = status end
  for i = from, admitted and 0 or to, 3 do -- as refuse_simple
    local code, cost, l = input[i], input[i + 1], limits + 6 * input[i + 2]
    local k = floor(code / 8) * 5
    local ok, left, retry, rest
    if input[l] ~= FIXED then
      local at, n, m, ends
      ok, left, retry, rest, at, n, m, ends = other(k, now, cost, l)
      if not ok or code % 4 > 1 then
        if at then s[k + 1], s[k + 2], s[k + 3], lives[k / 5] = at, n, m, ends - since end
      else
        ok, left, retry, rest = other(k, now, 0, l)
        ok, retry = true, cost < 0 and retry or 0
      end
      if left < 0 then left = 0 end
    else
      local cap, win = input[l + 1], input[l + 2]
      local start, used = now - now % win, s[k + 2]
      if s[k + 1] < start then used = 0 end
      local want, taken = cost > 1 and cost or 1, 0
      ok, rest, retry = cost < 0 or want <= cap - used, start + win - now, 0
      if not ok and used < cap and input[l + 5] == 0 then taken = cap - used end
      if ok and cost ~= 0 and code % 4 > 1 or taken > 0 then
        used = used + (ok and cost or taken)
        if used < 0 then used = 0 end
        s[k + 1], s[k + 2], lives[k / 5] = start, used, rest + now - since
      end
      left = cap - used
      if not ok or cost < 0 or code % 4 > 1 then
        if want > cap then retry = NEVER elseif want > left then retry = rest end
      end
      if left < 0 then left = 0 end
      if taken > 0 then left = taken end
    end
    out[filled + 1] = ok and left or -1 - left
    if retry == 0 then
      out[filled + 2], filled = rest, filled + 2
    else
      out[filled + 2], out[filled + 3], out[filled + 4], filled = -1 - rest, retry, now, filled + 4
    end
  end
  if admitted then
    for i = 1, changes, 4 do
      local k = changed[i]
      s[k + 1], s[k + 2], lives[k / 5] = changed[i + 1], changed[i + 2], changed[i + 3]
      if others then s[k + 3] = thirds[i] end
    end
  end
  p = to + 3
end
for k = 1, n do
  local i, key, life = 5 * k, keys[k], lives[k]
  local at, used, units = s[i + 1], s[i + 2], numbers[i]
  if life == key then -- nothing to write
  elseif units and at == numbers[i + 1] and used < UNITS / 2 and not injected
      and (tonumber(pcall_('PTTL', key)) or 0) * 1000 >= life -- a limit with a shorter window may have made it
      and tonumber(pcall_('INCRBY', key, used - units == 1 and '1' or used - units)) then -- counted
  elseif (units or alone[i]) and s[i] == FIXED and life > 0 and life <= NEAR and at - precise <= NEAR and precise - at <= NEAR
      and at % 1000000 == 0 and used < UNITS / 2 and s[i + 3] == 0 then
    local number = string.format('%d%010d', FIRST + at / 1000000 % STARTS, used)
    call('SET', key, number, 'PX', ceil((life + 2 * MARGIN) / 1000))
  elseif not (life > 0 and precise + life + MARGIN <= s[i + 4] * 1000000
      and pcall_('SETRANGE', key, '1', others and pack('<I7dd', at, used, s[i + 3]) or pack('<I7d', at, used)) == 28) then
    life = life + 2 * MARGIN -- see write
    local till = min(floor((precise + life) / 1000000), 4294967295)
    call('SET', key, pack('<BI7ddI4', s[i], at, used, s[i + 3], till), 'PX', ceil(life / 1000))
  end
end
return pack('<' .. rep('d', filled), unpack(out, 1, filled))
