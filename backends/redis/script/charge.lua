-- CHARGE: decides an op on the state s of a window or bucket, as soon as the state allows.
--   charge    fills the outcome o and returns the state with what was recorded, or nil
--   answer    adds the outcome o of an op of a request at instant now to the output
-- uses: input, step, debt_machine, overflowing, late, max

local function charge(now, s, cost, l, o)
  local after
  if input[l + BELOW] < 0 then
    local at = max(s[AT], now)
    after = step(at, s, cost, l, o)
    o[CHARGED] = at
  else
    if not overflowing then debt_machine() end
    after = overflowing(now, s, cost, l, o)
  end
  late(now, o)
  return after
end

local function answer(now, o)
  local ok, left, retry, reset, charged = o[OK], o[LEFT], o[RETRY], o[RESET], o[CHARGED]
  --@include answer.lua
end
