-- REFUNDS OF LOGS.
--   refund_log   gives back n units that were recorded from instant t to instant till, and returns how many of them
--                were still there
-- uses: call, keys, logs, zset, load_log, search, tonumber, unpack, min, refund_log

-- refund_list takes units out of a list, and moves up the running sums of what has come since. It returns how many it
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

-- refund_zset is refund_list for a zset: units of one instant are as good as each other.
local function refund_zset(key, t, till, n)
  local taken = 0
  while taken < n do
    local r = call('ZRANGEBYSCORE', key, t / 1000, till / 1000, 'LIMIT', 0, min(n - taken, 1000))
    if #r == 0 then break end
    taken = taken + call('ZREM', key, unpack(r))
  end
  return taken
end

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
