-- REQUESTS of layout=envoy.
--   decide      answers a request of n ops from p of the input
--   give_back   gives back what n ops from p took in their windows, and answers whether all of it is still there. A
--               window that has ended has a counter that nobody asks
--   correct     answers an op that gives back what it took at an instant: none of a window that is over
-- uses: input, limits, counts, lives, there, load, put, step, out, filled, pairs, floor, max

local function add(now, o)
  local ok, left, retry, reset, charged = o[OK], o[LEFT], o[RETRY], o[RESET], o[CHARGED]
  --@include answer.lua
end

-- refuse decides again what a refused request charges all the same, and corrects the outcomes of the ops that it does
-- not charge.
local function refuse(ops, now)
  local over = {}
  --@include overflows.lua
  local asks = {}
  for i = 1, #ops do
    local op = ops[i]
    if op[BITS] >= EACH or op[COST] > 0 and over[op[KEY]] then
      step(op[KEY], op[COST], now, op[LIMIT], op)
    else
      asks[#asks + 1] = op
    end
  end
  for i = 1, #asks do
    local op = asks[i]
    local ok, retry = op[OK], op[RETRY]
    step(op[KEY], 0, now, op[LIMIT], op)
    if not ok then
      op[RETRY] = retry
    elseif op[COST] >= 0 then
      op[RETRY] = 0
    end
    op[OK] = ok
  end
end

local function decide(now, n, p)
  local ops, counts_before, lives_before = {}, {}, {}
  local status, admitted = filled + 1, true
  filled = status
  for i = 1, n do
    local code = input[p]
    local bits, k = code % OP_BITS, floor(code / OP_BITS)
    local unreadable = load(k)
    if unreadable then
      out[status] = unreadable
      return
    end
    ops[i] = {false, 0, 0, 0, 0, bits, k, i, input[p + OP_COST], limits + LIMIT_SIZE * input[p + OP_LIMIT]}
    counts_before[k], lives_before[k] = counts[k], lives[k] or false
    p = p + OP_SIZE
  end
  for i = 1, n do
    local op = ops[i]
    step(op[KEY], op[COST], now, op[LIMIT], op)
    if not op[OK] and op[BITS] % EACH < SHADOW then admitted = false end
  end
  if not admitted and n > 1 then
    for k, count in pairs(counts_before) do counts[k], lives[k] = count, lives_before[k] or nil end
    refuse(ops, now)
  end
  out[status] = admitted and 1 or 0
  for i = 1, n do add(now, ops[i]) end
end

local function give_back(now, n, p)
  local all = 1
  filled = filled + 1
  for i = p, p + OP_SIZE * (n - 1), OP_SIZE do
    local k, cost = floor(input[i] / OP_BITS), input[i + OP_COST]
    local unreadable = load(k)
    if unreadable then
      out[filled] = unreadable
      return
    end
    if counts[k] < cost then all = 0 end
    if counts[k] > 0 then put(k, max(counts[k] - cost, 0), now, limits + LIMIT_SIZE * input[i + OP_LIMIT]) end
  end
  out[filled] = all
end

local function correct(now, p)
  local k, cost, l = floor(input[p] / OP_BITS), input[p + OP_COST], limits + LIMIT_SIZE * input[p + OP_LIMIT]
  local unreadable = load(k)
  if unreadable then
    filled = filled + 1
    out[filled] = unreadable
    return
  end
  local win, taken = input[l + WINDOW], 0
  if input[p + OP_SIZE] >= now - now % win and (there[k] or lives[k]) then taken = cost end
  if taken < 0 then put(k, max(counts[k] + taken, 0), now, l) end
  out[filled + 1], out[filled + 2], out[filled + 3] = 1, taken, max(input[l + CAPACITY] - counts[k], 0)
  out[filled + 4], filled = win - now % win, filled + 4
end
