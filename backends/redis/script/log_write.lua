-- WRITE LOGS.
--   commit      writes what a request did to log k. A view that was only added to stays good for the slice's next
--               request; others are read again
--   moved_log   the view of log k as it counts for an op at now, which is before its last record, with the limit at l
-- uses: input, logs, keys, zset, salt, since, call, load_log, expired, instant_of, pack, unpack, string, floor, ceil,
--   max, commit, moved_log

-- append_pending adds the view's pending records to args, a command to be called.
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

-- expire has a key live until an instant.
local function expire(key, ends) call('PEXPIRE', key, ceil((ends - since) / 1000)) end

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
  expire(key, ends)
end

local function commit_list(v, key)
  local last = v.pend and v.pend_at or v.last
  local need = last + v.window + MARGIN
  local ends = need + floor(v.window / 8) + MARGIN -- in advance, so that few takes must move it
  if v.hi <= v.lo then
    if v.total > 0 then call('DEL', key) end
    if not v.pend then return end
    local args = {'RPUSH', key, ends, 0}
    append_pending(v, args, 0)
    call(unpack(args))
    expire(key, ends)
    return
  end
  if v.hi < v.total then
    local _, before = instant_of(v, key, v.hi)
    call('LTRIM', key, 0, 2 * before + 3)
    call('LSET', key, -1, (v.base + v.hi) % WRAP)
  end
  if v.lo > 0 then
    -- The pair of the last expired record becomes the header: its running sum is the one before the first record that
    -- stays.
    call('LTRIM', key, 2 * v.records, -1)
  end
  if v.pend then
    local args = {'RPUSH', key}
    append_pending(v, args, v.base + v.hi)
    call(unpack(args))
  end
  if need > v.ends then
    call('LSET', key, 0, ends)
    expire(key, ends)
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
  if v.hi > v.lo or v.pend then expire(key, last + v.window + MARGIN) end
end

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

function moved_log(k, v, now, l)
  local win, owe = input[l + WINDOW], 0
  if input[l + BELOW] > 0 then owe = ceil(input[l + BELOW] * input[l + NUM] / input[l + DEN]) end
  if v.last - now <= max(win + owe, AHEAD) then return v end
  local used = v.total - expired(v, keys[k], now - win)
  v.hi, v.pend, v.pended, v.pend_at, v.window = 0, {used, nil, 65535}, used, now, win
  commit(k, v)
  return load_log(k)
end
