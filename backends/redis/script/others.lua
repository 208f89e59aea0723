-- OTHERS: decides requests that are neither simple nor common, and simple ones with alternatives (limit/decide.go). The
-- text ends the function that makes them: it returns the function for a request of n ops from p of the input, whose ops
-- come after number others in the slice.
-- uses: input, limits, logs, leases, load, take, ask, gives, give_back, settle, hold_back, commit, answer, out, filled,
--   saved, restore, alternatives, choose, chosen_before, unpack, floor, max

-- refuse records what a refused request still charges and corrects the outcomes of the others.
local function refuse(ops, now)
  local over = {}
  --@include overflows.lua
  local asks = {}
  for i = 1, #ops do
    local op = ops[i]
    if op[BITS] >= EACH or op[COST] > 0 and over[op[KEY]] and not op[CHOICE] then
      take(op, now, op[COST])
    else
      asks[#asks + 1] = op
    end
  end
  for i = 1, #asks do
    local op = asks[i]
    ask(op, now, op[OK], gives(op))
  end
end

-- remember has refusals count for their limit's hold.
local function remember(ops, now)
  for i = 1, #ops do
    local op = ops[i]
    if input[op[LIMIT]] == LEASE and not op[OK] then leases.refused(op, now) end
  end
end

-- repeated says whether one of the ops is an acquire that was granted before: then all of the request was, and is not
-- charged again.
local function repeated(ops, now)
  for i = 1, #ops do
    if input[ops[i][LIMIT]] == LEASE and leases.repeated(ops[i], now) then return true end
  end
  return false
end

local function decide_repeated(ops, now)
  for i = 1, #ops do
    local op = ops[i]
    local mine = input[op[LIMIT]] == LEASE and leases.repeated(op, now)
    take(op, now, mine and op[COST] or 0, true)
    op[OK], op[RETRY] = true, 0
  end
end

-- decide decides a request, of which groups are the alternatives if it has any.
local function decide(ops, now, groups)
  local old_states, old_logs = saved(ops)
  if leases then leases.begin() end
  local admitted = true
  if groups then
    admitted = choose(ops, now, groups, old_states, old_logs)
  else
    hold_back(ops, now)
    for i = 1, #ops do
      local op = ops[i]
      if not take(op, now, op[COST], false) and op[BITS] % EACH < SHADOW then admitted = false end
    end
  end
  if not admitted then
    restore(old_states, old_logs)
    if leases then remember(ops, now) end
    refuse(ops, now)
  end
  if leases then leases.commit() end
  return admitted
end

-- admit decides a request, and returns whether it is admitted. Of a request of one op nothing is ever taken back.
local function admit(ops, now, groups)
  if leases and repeated(ops, now) then
    decide_repeated(ops, now)
    if groups then chosen_before(groups) end
    return true
  elseif #ops > 1 or groups then
    return decide(ops, now, groups)
  end
  return take(ops[1], now, ops[1][COST], true) or ops[1][BITS] % EACH == SHADOW
end

-- add_outcome commits what an op did to a log, and adds its outcome to the output.
local function add_outcome(op, now)
  local v = logs[op[KEY]]
  if v and v.dirty then commit(op[KEY], v) end
  if op[TAKEN] then
    out[filled + 1], out[filled + 2], out[filled + 3], filled = op[TAKEN], max(op[LEFT], 0), op[RESET], filled + 3
  else
    answer(now, op)
  end
  if op[IN_FLIGHT] then
    filled = filled + 1
    out[filled] = 2 * op[IN_FLIGHT] + (op[HELD] and 1 or 0)
  end
  if op[ENDED] or op[CHOICE] then
    filled = filled + 1
    out[filled] = op[ENDED] or op[CHOSEN] and 1 or 0
  end
end

return function(now, n, p, number, kind)
  local ops = {}
  for i = 1, n do
    local code = input[p]
    local bits, k = code % OP_BITS, floor(code / OP_BITS)
    local l, held = limits + LIMIT_SIZE * input[p + OP_LIMIT], floor(k / KEYS_HELD)
    ops[i] = {false, 0, 0, 0, 0, bits, k % KEYS_HELD, number + i, input[p + OP_COST], l, held}
    p = p + OP_SIZE
  end
  for i = 1, n do
    -- A refund moves nothing to its instant, which is past.
    local at = kind == REFUND and input[ops[i][LIMIT]] ~= LEASE and EXACT or now
    if not load(ops[i], at) then
      filled = filled + 1
      local k, status = ops[i][KEY], 0
      --@include unreadable.lua
      out[filled] = status
      return
    end
  end
  local admitted, after = true, kind > SIMPLE and {unpack(input, p, p + n - 1)}
  if kind == REFUND then
    admitted = give_back(ops, now, after)
  elseif kind == SETTLEMENT then
    settle(ops, now, after)
  else
    admitted = admit(ops, now, kind > 0 and alternatives(ops, after))
  end
  filled = filled + 1
  out[filled] = admitted and 1 or 0
  if kind == REFUND then return end
  for i = 1, n do add_outcome(ops[i], now) end
end
