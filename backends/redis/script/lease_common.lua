-- COMMON REQUESTS WITH A LEASE: one op is about a lease that is new, or exists and ends, and the others are as in a
-- simple request.
--   m.common   decides such a request of n ops from p. Of any other it returns false and writes nothing
-- uses: input, limits, m, states, load_state, charge, answer, outcome, changed, owed, due, held_back, views, view, find, set,
--   keep, refusals, latest, ahead, expiry, amount, reserved, lease_cost, out, filled, call, tonumber, floor, ceil, max,
--   keys

-- find_lease returns the member of the lease that the op at place is about, its score if there is one, and when it
-- expires if it is new. It returns nothing if the op needs more than this path does.
local function find_lease(place, now)
  local l, k = limits + LIMIT_SIZE * input[place + OP_LIMIT], floor(input[place] / OP_BITS)
  local units, ending, holder = lease_cost(input[place + OP_COST])
  local v = view(k, now)
  if not v or v.untidy or v.n + units >= input[l + CAPACITY] or v.refusals and #refusals(k, now) > 0 then return nil end
  local member, score, gone = 'l' .. holder, nil, nil
  if holder ~= '' then
    score, gone = find(k, holder, now)
  elseif units == -1 and v.n > 0 and not v.ends then
    local first = v.all or call('ZRANGE', keys[k], '0', '0', 'WITHSCORES')
    member, score = first[1], tonumber(first[2])
  end
  if units == 1 then
    local till = ceil((now + input[l + WINDOW]) / 1000)
    if score or gone or max(expiry(latest(k, now)), till * 1000) - now > ahead(input[l + WINDOW], l) then return nil end
    return member, nil, till
  elseif units ~= -1 or not score or ending == END_OWNER or ending == END_LATE then
    return nil
  elseif ending == END_ATTEMPT and score % 8 > 0 then
    return nil
  end
  return member, score, nil
end

-- charge_beside decides the op at i, beside the lease. asOf is where its instant is, of a settlement. It adds its
-- answer, and returns its key and state; nothing if it needs more than this path does.
local function charge_beside(i, now, lease_key, lease_limit, member, score, asOf)
  local code, cost, l = floor(input[i] / OP_BITS), input[i + OP_COST], limits + LIMIT_SIZE * input[i + OP_LIMIT]
  local k = code % KEYS_HELD
  local held, before = (code - k) / KEYS_HELD, states[k] or load_state(k, input[l])
  if not before or before[AT] > now or held > 0 and held ~= lease_key then return nil end
  local s = before
  if held > 0 then s = held_back(s, now, reserved(lease_key), l) end
  if asOf then
    local from, till = input[asOf], input[asOf]
    cost = owed(cost, from, amount(member))
    if from < 0 then from, till = m.granted(score, lease_limit) end
    cost = due(s, now, from, till, cost, l)
  end
  s = charge(now, s, cost, l, outcome) or s
  if outcome[CHARGED] ~= now or not outcome[OK] and (cost ~= 0 or not asOf) then return nil end
  if asOf then
    out[filled + 1], out[filled + 2], out[filled + 3], filled = cost, max(outcome[LEFT], 0), outcome[RESET], filled + 3
  else
    answer(now, outcome)
  end
  return k, s, s ~= before
end

function m.common(now, n, p, settling)
  local place = p
  while input[limits + LIMIT_SIZE * input[place + OP_LIMIT]] ~= LEASE do place = place + OP_SIZE end
  local member, score, till = find_lease(place, now)
  if not member then return false end
  local l, k = limits + LIMIT_SIZE * input[place + OP_LIMIT], floor(input[place] / OP_BITS)
  local status, lease, changes = filled + 1, nil, 0
  filled = status
  for i = 0, n - 1 do
    local op = p + OP_SIZE * i
    if op == place then
      lease, filled = filled, filled + (settling and 4 or 3)
    else
      local key, s, differs = charge_beside(op, now, k, l, member, score, settling and p + OP_SIZE * n + i)
      if not key then
        filled = status - 1
        return false
      end
      if differs then changed[changes + 1], changed[changes + 2], changes = key, s, changes + 2 end
    end
  end
  for i = 1, changes, 2 do states[changed[i]] = changed[i + 1] end
  set(k, member, till and till * 8, score)
  local v = views[k]
  if till then
    keep(k, till * 1000)
    v.n = v.n + 1
  else
    v.n = v.n - 1
  end
  out[status], out[lease + 1] = 1, input[l + CAPACITY] - v.n
  out[lease + 2] = v.n > 0 and expiry(latest(k, now)) - now or 0
  out[lease + 3] = 2 * v.n + (till and 0 or 1)
  if settling then out[lease + 4] = 1 end
  return true
end
