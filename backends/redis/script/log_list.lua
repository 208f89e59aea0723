-- LOGS THAT OWE are lists of records, at most PARTS of them once they were moved.
--   shift        moves the units of a stored log that come after the first gone by d
--   waits        retry and reset of an op on a list
--   listed_log   decides an op on a log that is a list, and fills the outcome o, but for late
-- uses: input, call, instant_of, may_owe, pay_back, tonumber, unpack, ceil, min, max, listed_log

-- parts divides the n units of a log into PARTS and returns a list of them, each moved by d and as late as its last
-- unit. instant is called with ascending units.
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

-- listed returns where the units of a list begin that have not expired at an instant, and how many they are.
local function listed(list, edge)
  local first, used = 1, 0
  while list[first] and list[first] <= edge do first = first + 2 end
  for i = first, #list, 2 do used = used + list[i + 1] end
  return first, used
end

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

-- without returns a list from first on without its last units.
local function without(list, first, units)
  list = {unpack(list, first)}
  while units > 0 do
    local last = #list
    local some = min(units, list[last])
    units, list[last] = units - some, list[last] - some
    if list[last] == 0 then list[last], list[last - 1] = nil, nil end
  end
  return list
end

function listed_log(v, now, cost, want, l, o)
  local cap, win, below = input[l + CAPACITY], input[l + WINDOW], input[l + BELOW]
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
  local overflows = not ok and cost > 0 and below >= 0 and not o[CHOICE]
  local n = cost
  if not ok then n = overflows and max(cap - used, 0) or 0 end
  if n > 0 then
    list = {unpack(list, first)}
    list[#list + 1], list[#list + 2] = at, n
    used, first = used + n, 1
    replace(v, list, win)
  elseif n < 0 then
    local back = min(-n, used)
    list, used = without(list, first, back), used - back
    replace(v, list, win)
  end
  if overflows then
    local owe = min(cost - n, may_owe(at - now, l))
    taken = n + owe
    if owe > 0 then
      shift_list(v, list, first, used, ceil(owe * input[l + NUM] / input[l + DEN]), win)
      at = max(v.last, now)
    end
  end
  o[OK], o[LEFT], o[CHARGED] = ok, ok and cap - used or taken, at
  o[RETRY], o[RESET] = waits(v.list, at, want, cap, win)
end
