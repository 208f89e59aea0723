-- Decides a slice of requests on counters of layout=envoy, which envoyproxy/ratelimit
-- counts in as well: whole numbers, one for each window, with the window's start in the
-- name of the key. The slice and the reply are written as take.lua has them; all limits
-- are fixed windows that refuse or saturate, all instants are given and whole seconds.
--
-- ARGV[2]  how many seconds keys live beyond the length of their window
--
-- A cost that a limit with overflow saturate refuses is counted all the same, beyond the
-- limit, as that program does. So a counter may be of any size; what is beyond EXACT is
-- as good as that, and is not changed.

local keys, call, pcall_ = KEYS, redis.call, redis.pcall
local floor, ceil, min, max = math.floor, math.ceil, math.min, math.max
local unpack_, pack, rep = struct.unpack, struct.pack, string.rep

local NEVER = -1
local EXACT = 4503599627370496 -- 2^52
local MOST = 4000 -- values that fit on Lua's stack at once

-- decode and encode do as those of take.lua. They are written twice, because a function that both
-- scripts share would have to fit both: take.lua makes only what the most frequent requests need.

-- decode returns the doubles of a blob, and how many they are.
local function decode(blob)
  local n, list = #blob / 8, {}
  for from = 0, n - 1, MOST do
    local count = min(MOST, n - from)
    local part = {unpack_('<' .. rep('d', count), blob, 8 * from + 1)}
    for i = 1, count do list[from + i] = part[i] end
  end
  return list, n
end

-- encode returns the first n numbers of list as doubles.
local function encode(list, n)
  local parts = {}
  for from = 1, n, MOST do
    local to = min(from + MOST - 1, n)
    parts[#parts + 1] = pack('<' .. rep('d', to - from + 1), unpack(list, from, to))
  end
  return table.concat(parts)
end

local input, size = decode(ARGV[1])
local limits = size - 6 * input[3] + 1 -- where the first limit is
local jitter = tonumber(ARGV[2])
local time = call('TIME')
local clock = tonumber(time[1]) * 1000000 + tonumber(time[2])
local out, filled = {clock}, 1

-- By key: whether it is there, what is stored, what counts now, and for how many seconds it is needed if it is
-- to be written.
local there, stored, counts, lives = {}, {}, {}, {}

-- load reads the counter of key k, and returns false if it is not a count.
local function load(k)
  if counts[k] then return true end
  local raw = pcall_('GET', keys[k])
  if type(raw) == 'table' then -- another type, or the user may not read
    if string.find(raw.err, 'WRONGTYPE', 1, true) then return false end
    call('GET', keys[k])
  end
  local n = 0
  if raw then
    if not string.find(raw, '^-?%d+$') or #raw > 20 then return false end
    n = tonumber(raw)
    if n < -EXACT then return false end
  end
  there[k], stored[k], counts[k] = raw and true, n, min(max(n, 0), EXACT)
  return true
end

-- put sets what counts under key k for an op of the limit at l and the instant now.
local function put(k, n, now, l)
  local win = input[l + 2]
  counts[k] = min(n, EXACT)
  -- Injected instants run at a pace of their own: see take.lua.
  lives[k] = max(lives[k] or 0, win / 1000000 + jitter, ceil((now - now % win + win - clock) / 1000000))
end

-- step decides one op alone and records it. It returns whether the op has room, what
-- remains (without room: what is taken of a limit that saturates), retry and reset.
local function step(k, cost, now, l)
  local cap, win, saturates = input[l + 1], input[l + 2], input[l + 5] == 0
  local want, used = max(cost, 1), counts[k]
  local ok, taken = cost < 0 or want <= cap - used, 0
  if not ok and saturates and cost > 0 then taken = max(cap - used, 0) end
  if ok and cost ~= 0 or not ok and saturates and cost > 0 then
    used = max(used + cost, 0)
    put(k, used, now, l)
  end
  local rest, retry = win - now % win, 0
  if want > cap then
    retry = NEVER
  elseif want > cap - used then
    retry = rest
  end
  return ok, taken > 0 and taken or max(cap - used, 0), retry, rest
end

local function answer(now, ok, remaining, retry, reset)
  local o = filled
  out[o + 1] = ok and remaining or -1 - remaining
  if retry == 0 then
    out[o + 2], filled = reset, o + 2
  else
    out[o + 2], out[o + 3], out[o + 4], filled = -1 - reset, retry, now, o + 4
  end
end

-- An op is its bits, key, cost, the place of its limit, and what step returns.

-- refuse decides again what a refused request charges all the same, and corrects the
-- outcomes of the ops that it does not charge.
local function refuse(ops, now)
  local over = {} -- keys under which an op had no room and is counted all the same
  for i = 1, #ops do
    local op = ops[i]
    if not op[5] and input[op[4] + 5] == 0 and op[3] > 0 then over[op[2]] = true end
  end
  local rest = {}
  for i = 1, #ops do
    local op = ops[i]
    if op[1] % 4 > 1 or op[3] > 0 and over[op[2]] then
      op[5], op[6], op[7], op[8] = step(op[2], op[3], now, op[4])
    else
      rest[#rest + 1] = op
    end
  end
  for i = 1, #rest do
    local op = rest[i]
    local _, left, retry = step(op[2], 0, now, op[4])
    op[6] = left
    if op[5] then op[7] = op[3] < 0 and retry or 0 end
  end
end

-- decide answers a request of n ops from p of the input.
local function decide(now, n, p)
  local ops, counts_before, lives_before = {}, {}, {}
  local status, admitted = filled + 1, true
  filled = status
  for i = 1, n do
    local code = input[p]
    local k = floor(code / 8)
    if not load(k) then
      out[status] = 1 + k
      return
    end
    ops[i] = {code % 8, k, input[p + 1], limits + 6 * input[p + 2], false, 0, 0, 0}
    counts_before[k], lives_before[k] = counts[k], lives[k] or false
    p = p + 3
  end
  for i = 1, n do
    local op = ops[i]
    op[5], op[6], op[7], op[8] = step(op[2], op[3], now, op[4])
    if not op[5] and op[1] % 2 < 1 then admitted = false end
  end
  if not admitted and n > 1 then
    for k, count in pairs(counts_before) do counts[k], lives[k] = count, lives_before[k] or nil end
    refuse(ops, now)
  end
  out[status] = admitted and 1 or 0
  for i = 1, n do answer(now, ops[i][5], ops[i][6], ops[i][7], ops[i][8]) end
end

-- give_back gives back what n ops from p took in their windows, and returns whether all of
-- it is still there. A window that has ended has a counter that nobody asks.
local function give_back(now, n, p)
  local all = 1
  filled = filled + 1
  for i = p, p + 3 * n - 3, 3 do
    local k, cost = floor(input[i] / 8), input[i + 1]
    if not load(k) then
      out[filled] = 1 + k
      return
    end
    if counts[k] < cost then all = 0 end
    if counts[k] > 0 then put(k, max(counts[k] - cost, 0), now, limits + 6 * input[i + 2]) end
  end
  out[filled] = all
end

-- correct answers an op that gives back what it took at an instant: none of a window that is over.
local function correct(now, p)
  local k, cost, l = floor(input[p] / 8), input[p + 1], limits + 6 * input[p + 2]
  if not load(k) then
    filled = filled + 1
    out[filled] = 1 + k
    return
  end
  local win, taken = input[l + 2], 0
  if input[p + 3] >= now - now % win and (there[k] or lives[k]) then taken = cost end
  if taken < 0 then put(k, max(counts[k] + taken, 0), now, l) end
  out[filled + 1], out[filled + 2], out[filled + 3] = 1, taken, max(input[l + 1] - counts[k], 0)
  out[filled + 4], filled = win - now % win, filled + 4
end

local p = 4
for _ = 1, input[2] do
  local now, shape = input[p], input[p + 1]
  local kind = shape % 8
  local n = (shape - kind) / 8
  if kind == 2 then
    give_back(now, n, p + 2)
    p = p + n
  elseif kind == 3 then
    correct(now, p + 2)
    p = p + n
  else
    decide(now, n, p + 2)
  end
  p = p + 2 + 3 * n
end

-- unlock has a full server take what is written to counters that are there: see take.lua.
local function unlock()
  local first, new = nil, {}
  for k = 1, #keys do
    if lives[k] and not there[k] then
      new[#new + 1] = k
    elseif lives[k] then
      first = first or k
    end
  end
  if not first then return false end
  pcall_('PEXPIRE', keys[first], string.format('%.0f', 1000 * lives[first]))
  for i = 1, #new do lives[new[i]] = nil end
  return #new > 0
end

local partly = input[1] >= 16 and unlock()
for k = 1, #keys do
  if lives[k] and stored[k] <= EXACT then
    call('SET', keys[k], string.format('%.0f', counts[k]), 'EX', string.format('%.0f', lives[k]))
  end
end
if partly and out[2] == 1 then out[2], filled = -1, 2 end
return encode(out, filled)
