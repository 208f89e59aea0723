-- DEBT: limits that take something of a cost without room (limit/overflow.go).
--   may_owe       how many units more may be owed by a state that lies so far ahead of its op
--   pay_back      has a negative cost pay what a bucket or log owes first that lies so far ahead; returns what is left
--                 of the cost, and by how much less it lies ahead
--   overflowing   decides an op with a limit that overflows. It fills the outcome o, also CHARGED (LEFT is what was
--                 taken if there was no room), and returns the state with what was recorded, or nil
-- uses: input, since, step, window, window_state, window_debt, weigh, floor, ceil, min, max, may_owe, pay_back,
--   overflowing

function may_owe(ahead, l)
  local below, num, den = input[l + BELOW], input[l + NUM], input[l + DEN]
  if below == 0 or ahead >= ceil(below * num / den) then return 0 end
  return floor((below * num - ahead * den) / num)
end

function pay_back(ahead, cost, l)
  local below, num, den = input[l + BELOW], input[l + NUM], input[l + DEN]
  local due, by = below, ahead
  if ahead < ceil(below * num / den) then due = ceil(ahead * den / num) end
  local paid = min(-cost, due)
  if paid < due then by = min(floor(paid * num / den), ahead) end
  return cost + paid, by
end

-- bucket_state returns the state of a bucket with this level at an instant, which lies ahead if the level is below
-- zero.
local function bucket_state(s, at, level, l)
  local num, den = input[l + NUM], input[l + DEN]
  if level < 0 then
    local wait = ceil(-level / den)
    at, level = min(at + wait, EXACT), min(level + wait * den, num - 1)
  end
  return {at, level, num, s[LIVES], BUCKET, at + ceil((input[l + CAPACITY] * num - level) / den) - since}
end

local function bucket_level(now, s, l)
  local cap, one, two = input[l + CAPACITY], input[l + NUM], input[l + DEN]
  local at, n, m, brim, level = s[AT], s[N], s[M], 0, 0
  --@include bucket_level.lua
  return level
end

-- spill returns what a cost takes that has no room, and the state without it.
local function spill(at, now, s, cost, l)
  local cap, below = input[l + CAPACITY], input[l + BELOW]
  if input[l] == BUCKET then
    local level = bucket_level(at, s, l)
    local left = floor(level / input[l + NUM])
    local taken = left + min(cost - left, may_owe(at - now, l))
    if taken <= 0 then return 0 end
    return taken, bucket_state(s, at, level - taken * input[l + NUM], l)
  end
  local start, cur, prev = window(at, s, l)
  local used, win = cur, input[l + WINDOW]
  if input[l] == SLIDING then used = cur + weigh(prev, start + win - at, win, input[l + STEP], input[l + STEPS]) end
  local taken = min(cost, cap + below - used)
  if taken <= 0 then return 0 end
  return taken, window_state(s, start, cur + taken, prev, l)
end

function overflowing(now, s, cost, l, o)
  local at, below = max(s[AT], now), input[l + BELOW]
  if cost < 0 and at > now and below > 0 and input[l] == BUCKET then
    local rest, by = pay_back(at - now, cost, l)
    s = {s[AT] - by, s[N], s[M], s[LIVES], BUCKET, 0}
    s[LIFE] = s[AT] + ceil((input[l + CAPACITY] * input[l + NUM] - bucket_level(s[AT], s, l)) / input[l + DEN]) - since
    at = max(s[AT], now)
    local after = step(at, s, rest, l, o)
    o[OK], o[CHARGED] = true, at
    return after or s
  end
  local decide = below > 0 and input[l] ~= BUCKET and window_debt or step
  local after = decide(at, s, cost, l, o)
  if not o[OK] and cost > 0 and not o[CHOICE] then
    local taken
    taken, after = spill(at, now, s, cost, l)
    if after then
      at = max(after[AT], now)
      decide(at, after, cost, l, o)
      o[OK] = false
    end
    o[LEFT] = taken
  end
  o[CHARGED] = at
  return after
end
