-- REFUND: gives back what ops took of a request that was refused elsewhere.
--   give_back   gives back what ops took, each as of an instant, and returns whether that is all
-- uses: input, states, leases, refund_log, charge, outcome, max

-- refund gives back the units that an op took, as of an instant: for counters the end of the window that they were
-- taken in, for a bucket when it would have been full if they had not been, for a log when they were recorded. It
-- returns whether all of them were worth giving back. What has ended since, or would have come back by itself, is not
-- there any more: others have got it.
local function refund(op, now, as_of)
  local k, units, l = op[KEY], op[COST], op[LIMIT]
  if input[l] == LOG then return refund_log(k, as_of, as_of, units) == units end
  local s = states[k]
  local gone = max(s[AT], now) - as_of
  if input[l] ~= BUCKET and gone >= 0 then return false end
  if input[l] == BUCKET and gone > 0 then
    local num, lost = input[l + NUM], gone * input[l + DEN]
    if s[M] ~= num or lost >= units * num then return false end
    s = {s[AT], s[N] - lost, num, s[LIVES], s[TAG], false} -- first: a full bucket takes no units
  end
  states[k] = charge(now, s, -units, l, outcome) or states[k]
  return gone <= 0
end

-- What was charged together with a lease is charged for all who have acquired the lease.
local function give_back(ops, now, as_of)
  local all = true
  for i = 1, #ops do
    if input[ops[i][LIMIT]] == LEASE then all = leases.refund(ops[i], now) and all end
  end
  if not all then return false end
  for i = 1, #ops do
    if input[ops[i][LIMIT]] ~= LEASE then all = refund(ops[i], now, as_of[i]) and all end
  end
  return all
end
