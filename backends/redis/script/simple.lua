-- SIMPLE: requests of windows and buckets without alternatives, each under a key of its own, so no op bears on another.
--   simple    decides the n ops from p of the input
--   outcome   that of the op that was decided last; changed: keys and states that a request has changed, in pairs
-- uses: input, limits, states, load_state, moved, charge, answer, out, filled, floor

local outcome, changed = {false, 0, 0, 0, 0}, {}

-- refuse_simple records what is charged of a refused request all the same, and has the other ops ask what is left.
local function refuse_simple(now, n, p)
  for i = p, p + OP_SIZE * (n - 1), OP_SIZE do
    local code, cost, l = input[i], input[i + OP_COST], limits + LIMIT_SIZE * input[i + OP_LIMIT]
    local k = floor(code / OP_BITS)
    local s = states[k]
    local after = charge(now, s, cost, l, outcome)
    if code % OP_BITS >= EACH or not outcome[OK] then
      states[k] = after or s
    elseif n > 1 then
      -- It had room. To give back is about a single unit, others need not wait.
      charge(now, s, 0, l, outcome)
      outcome[OK] = true
      if cost >= 0 then outcome[RETRY] = 0 end
    end
    answer(now, outcome)
  end
end

-- Nothing is recorded before the whole request is decided.
local function simple(now, n, p)
  local status, admitted, changes = filled + 1, true, 0
  filled = status
  for i = p, p + OP_SIZE * (n - 1), OP_SIZE do
    local code, l = input[i], limits + LIMIT_SIZE * input[i + OP_LIMIT]
    local bits = code % OP_BITS
    local k = (code - bits) / OP_BITS
    local s = states[k] or load_state(k, input[l])
    if not s then
      filled = status
      --@include unreadable.lua
      out[filled] = status
      return
    end
    if s[AT] > now then s = moved(k, s, now, l) end
    local after = charge(now, s, input[i + OP_COST], l, outcome)
    if after then
      changed[changes + 1], changed[changes + 2], changes = k, after, changes + 2
    end
    if not outcome[OK] and bits % EACH < SHADOW then admitted = false end
    answer(now, outcome)
  end
  if admitted then
    out[status] = 1
    for i = 1, changes, 2 do states[changed[i]] = changed[i + 1] end
  else
    out[status], filled = 0, status
    refuse_simple(now, n, p)
  end
end
