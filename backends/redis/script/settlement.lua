-- SETTLEMENT: ends reservations and corrects what they have charged (limit/settle.go).
--   hold_back   refills the buckets of ops no further than their reservations allow
--   settle      answers a settlement; a lone op gives back
-- uses: input, states, logs, leases, load_log, commit, refund_log, take, owed, due, held_back,
--   max

local function hold_back(ops, now)
  for i = 1, #ops do
    local op = ops[i]
    local k, held = op[KEY], op[HELD_BY]
    if held > 0 then states[k] = held_back(states[k], now, leases.reserved(held, now), op[LIMIT]) end
  end
end

-- unrecord takes units out of a log.
local function unrecord(op, now, from, till, units)
  local k = op[KEY]
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

-- correct charges units, or gives -units back. It returns what it has charged.
local function correct(op, now, from, till, units)
  local l = op[LIMIT]
  if units < 0 and input[l] == LOG then
    return till >= from and from > 0 and -unrecord(op, now, from, till, -units) or 0
  end
  units = due(states[op[KEY]], now, from, till, units, l)
  if units == 0 then return 0 end
  if take(op, now, units) then return units end
  return input[l + BELOW] >= 0 and op[LEFT] or 0
end

local function settle(ops, now, as_of)
  local lease = ops[1]
  if #ops == 1 then
    lease[TAKEN] = correct(lease, now, as_of[1], as_of[1], lease[COST])
    take(lease, now, 0)
    return
  end
  hold_back(ops, now)
  leases.begin()
  take(lease, now, lease[COST], false)
  local ended = leases.ended(lease[KEY])
  leases.commit()
  lease[ENDED] = #ended
  for i = 2, #ops do
    local op, taken = ops[i], 0
    for j = 1, #ended do
      local from, till = as_of[i], as_of[i]
      if from < 0 then from, till = leases.granted(ended[j][2], lease[LIMIT]) end
      local units = owed(j == 1 and op[COST] or 0, as_of[i], leases.amount(ended[j][1]))
      taken = taken + correct(op, now, from, till, units)
    end
    if #ended == 0 and leases.holder(lease[COST]) == '' then taken = correct(op, now, 0, -1, max(op[COST], 0)) end
    take(op, now, 0)
    op[TAKEN] = taken
  end
end
