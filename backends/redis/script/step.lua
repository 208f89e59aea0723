-- STEP: the algorithms, for states.
--   calendar_window   when the window of an instant begins and ends, by the limit at l
--   step              decides an op alone on state s at an instant that is not before it. It fills o, an outcome, but
--                     for CHARGED, and returns the state with the op recorded, or nil if there is nothing to record
-- uses: input, since

local function calendar_window(at, l)
  if at < input[l + ENDS] then return input[l + BEGINS], input[l + ENDS] end
  return input[l + ENDS], input[l + WINDOW] -- the state lies ahead
end

local function step(now, s, cost, l, o)
  local algorithm, cap, win = input[l], input[l + CAPACITY], input[l + WINDOW]
  local one, two = input[l + STEP], input[l + STEPS]
  local at, n, m = s[AT], s[N], s[M]
  local start, want = now - now % win, cost > 1 and cost or 1
  local ends = start + win
  local ok, left, retry, reset, records
  if algorithm == BUCKET then
    --@include token_bucket.lua
  elseif algorithm == SLIDING then
    --@include sliding_window.lua
  else
    if algorithm == CALENDAR then start, ends = calendar_window(now, l) end
    --@include fixed_window.lua
  end
  o[OK], o[LEFT], o[RETRY], o[RESET] = ok, left, retry, reset
  if records then return {at, n, m, s[LIVES], s[TAG], ends - since} end
end
