-- OPS of requests that are neither simple nor common: of logs, of leases, of ops that share a key, and of alternatives.
-- An op is an outcome and more: see constants.lua.
--   load    what is stored under the key of an op, as it counts at an instant; nil for a key of another type
--   take    decides op alone at instant now, for cost, and records it; returns whether it has room. again: an acquire
--           whose lease is there is a repetition
--   ask     corrects the outcome of an op that is not recorded: what is left is what there is without it. An op that
--           had room need not wait; one that gives back is about a single unit
--   gives   whether an op gives back
-- uses: input, states, logs, leases, lease_machine, log_machine, load_state, load_log, moved, moved_log, sliding_log,
--   charge

local function load(op, now)
  local k, l = op[KEY], op[LIMIT]
  if input[l] == LEASE then
    leases = leases or lease_machine()
    return leases.count(k, now)
  end
  if input[l] == LOG then
    if not load_log then log_machine() end
    local v = logs[k] or load_log(k)
    return v and v.last > now and moved_log(k, v, now, l) or v
  end
  local s = states[k] or load_state(k, input[l])
  return s and s[AT] > now and moved(k, s, now, l) or s
end

local function take(op, now, cost, again)
  local k, l = op[KEY], op[LIMIT]
  if input[l] == LEASE then
    leases.take(op, now, cost, again)
  elseif input[l] == LOG then
    sliding_log(k, now, cost, l, op[NUMBER], op)
  else
    states[k] = charge(now, states[k], cost, l, op) or states[k]
  end
  return op[OK]
end

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

local function gives(op)
  if input[op[LIMIT]] == LEASE then return leases.gives(op[COST]) end
  return op[COST] < 0
end
