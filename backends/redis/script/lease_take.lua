-- LEASES: an op about a lease (limit/step_concurrency.go). Its cost is 0 to ask, or else has more in it: see HALF in
-- constants.lua. To end an owner's leases with units below -1 is to go on at the instant that follows the owner in
-- ARGV.
--   lease_cost   takes a cost apart: units, ending, holder ('' for none), its place
--   m.take       decides op alone and records it; again: an acquire whose lease is there is a repetition
--   m.refused    remembers an op without room whose request left no other trace
--   m.repeated   whether an op is an acquire that was granted before
--   m.refund     gives back an acquire, and returns whether that ended its lease: not if it was acquired again
--   m.reserved   how many units the live leases reserve
--   m.ended      the leases under a key that the request has ended: member and score
--   m.granted    between which instants a lease with this score was granted, by the limit at l; nothing if it was
--                renewed
--   m.gives, m.holder, m.count, m.amount   of a cost: whether it gives back, whose; of a key: its leases; of a lease
-- uses: input, m, views, far, journal, count, find, set, keep, refusals, remember, ahead, move, nth, latest, tidy,
--   renew, give_back, end_owner, end_late, reserved, amount, expiry, string, select, tonumber, ceil, min, max, unpack

local function lease_cost(cost)
  if cost == 0 then return 0, 0, '' end
  local units = cost % (2 * HALF)
  local rest = (cost - units) / (2 * HALF)
  local ending = rest % 8
  local place = (rest - ending) / 8
  return units - HALF, ending, place > 0 and ARGV[2 + place] or '', place
end

-- acquire grants or renews a lease. It returns whether there is room, whether the holder had the lease, and whether
-- that has ended before it was acquired.
local function acquire(k, now, l, units, holder, again)
  local n = count(k, now)
  local lease, ended, stored = find(k, holder, now)
  if lease then
    local times = lease % 8
    if units == 0 then times = MAX_AGAIN elseif again then times = min(times + 1, MAX_AGAIN) end
    renew(k, holder, now, l, times, lease)
    tidy(k, now)
    return true, true, false
  elseif units == 0 or ended then
    return false, false, true
  elseif n < input[l + CAPACITY] then
    local till = ceil((now + input[l + WINDOW]) / 1000)
    set(k, 'l' .. holder, till * 8, stored)
    keep(k, till * 1000)
    views[k].n = n + 1
    tidy(k, now)
    return true, false, false
  elseif input[l + HOLD] > 0 then
    remember(k, now, l)
    tidy(k, now)
  end
  return false, false, false
end

-- finish ends leases. It returns whether there was any, and of an owner where to go on.
local function finish(k, now, l, units, ending, holder, place)
  local held, rest
  if ending == END_OWNER and holder ~= '' then
    held, rest = end_owner(k, now, holder, units < -1 and tonumber(ARGV[3 + place]) or 0)
  elseif ending == END_LATE then
    held = end_late(k, now, -units)
  else
    held = give_back(k, now, l, units, ending, holder, false)
  end
  tidy(k, now)
  return held, rest
end

function m.take(op, now, cost, again)
  local k, l = op[KEY], op[LIMIT]
  local cap = input[l + CAPACITY]
  local units, ending, holder, place = lease_cost(cost)
  local ok, held, gone, rest = true, false, false, nil
  if units < 0 then
    held, rest = finish(k, now, l, units, ending, holder, place)
  elseif units == 0 and holder == '' then
    ok = count(k, now) < cap
  else
    ok, held, gone = acquire(k, now, l, units, holder, again)
  end
  local n = count(k, now)
  local in_flight, retry, reset = n, 0, 0
  if not ok or units == 0 then
    local _, sum = refusals(k, now)
    in_flight = n + sum
    if not ok and units > 0 and (input[l + HOLD] == 0 or gone) then in_flight = in_flight + 1 end
  end
  if n > 0 then
    reset = expiry(latest(k, now)) - now
    if units > 0 and reset > ahead(input[l + WINDOW], l) then
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
  op[OK], op[LEFT], op[RETRY], op[RESET], op[CHARGED] = ok, cap - n, retry, reset, now
  op[IN_FLIGHT], op[HELD] = in_flight, held
end

function m.refused(op, now)
  local k, l = op[KEY], op[LIMIT]
  local units, _, holder = lease_cost(op[COST])
  if units > 0 and far[k] then move(k, now, l) end
  if units > 0 and input[l + HOLD] > 0 then
    local _, ended = find(k, holder, now)
    if not ended then
      remember(k, now, l)
      tidy(k, now)
    end
  end
end

function m.repeated(op, now)
  local units, _, holder = lease_cost(op[COST])
  return units > 0 and find(op[KEY], holder, now) ~= nil
end

function m.refund(op, now)
  local _, _, holder = lease_cost(op[COST])
  local lease = find(op[KEY], holder, now)
  give_back(op[KEY], now, op[LIMIT], -1, END_ATTEMPT, holder, true)
  return lease and lease % 8 == 0
end

function m.reserved(k, now)
  while tidy(k, now) do end
  return reserved(k)
end

function m.ended(k)
  local list = {}
  for i = 1, #journal do
    local key, member, old, _, removed = unpack(journal[i], 1, 5)
    if key == k and old and removed and string.sub(member, 1, 1) == 'l' then list[#list + 1] = {member, old} end
  end
  return list
end

function m.granted(score, l)
  if score % 8 == MAX_AGAIN then return 0, -1 end
  local at = expiry(score) - input[l + WINDOW]
  return at - 999, at
end

function m.gives(cost) return (lease_cost(cost)) < 0 end
function m.holder(cost) return select(3, lease_cost(cost)) end
m.count, m.amount = count, amount
