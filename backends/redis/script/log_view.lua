-- LOG VIEWS. A view v of the stored log numbers its units from the oldest, 1 to total. A request works on the view and
-- commits it at its end:
--   lo, hi      units up to lo have expired, those after hi were given back
--   pend        records to be added, newest first: {n, older, number of the op}; all at pend_at, pended units in all
--   list        instead of all that: the records, an instant and units each, of a log that owes. It never changes, but
--               is replaced
-- In a list, elements come in pairs: the header (instant until which the key lives, running sum before the first
-- record), then per record its instant and the running sum up to and with it. Sums make every look-up a binary search.
-- In a zset each unit is a member; its score is in milliseconds.
--   load_log    the view of key k, nil if the key has another type
--   search      the first record of a list for which the instant, or the unit, is above x, as index, instant and last
--               unit, and the last unit of the record before. The first record must not satisfy it, the last one must
--   expired     how many stored units are not after edge, and for a list how many records hold them
--   instant_of  the instant of stored unit u and, for a list, the index of the record before the one that holds it
-- uses: call, read, keys, logs, zset, tonumber, floor, string, load_log

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
    if not (ends and ends >= 0 and ends <= 2 * EXACT) then return nil end
    if not (sane(base) and sane(t1) and sane(c1) and sane(tl) and sane(cl)) then return nil end
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

local function expired(v, key, edge)
  if v.total == 0 or v.first > edge then return 0, 0 end
  if v.last <= edge then return v.total, nil end
  if zset then return call('ZCOUNT', key, '-inf', string.format('%.3f', edge / 1000)), nil end
  local i, _, _, before = search(v, key, false, edge)
  return before, i - 1
end

local function instant_of(v, key, u)
  if zset then return tonumber(call('ZRANGE', key, u - 1, u - 1, 'WITHSCORES')[2]) * 1000 end
  if u <= v.unit1 then return v.first, 0 end
  local i, t = search(v, key, true, u - 1)
  return t, i - 1
end
