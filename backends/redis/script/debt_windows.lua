-- DEBT OF WINDOWS: windows that may owe (limit/overflow.go).
--   window         where the window of an op begins, and what is gone in it and in the one before
--   window_state   the state of a window
--   window_debt    what step does, for windows that may owe
-- uses: input, since, calendar_window, weigh, rest_for, ceil, min, max

-- owed returns what is left of used units after so many windows have paid, and windows_for how many must begin until n
-- units fit.
local function owed(used, windows, cap)
  if windows >= ceil(used / cap) then return 0 end
  return used - windows * cap
end

local function windows_for(used, n, cap) return max(1, ceil((used + n - cap) / cap)) end

local function window(at, s, l)
  local cap, win, below = input[l + CAPACITY], input[l + WINDOW], input[l + BELOW]
  local start, cur, prev = at - at % win, s[N], s[M]
  if input[l] == CALENDAR then start = calendar_window(at, l) end
  if below > 0 then cur = min(cur, cap + below) end
  if s[AT] < start then
    local n = (start - (s[AT] - s[AT] % win)) / win
    if below > 0 then
      cur, prev = owed(cur, n, cap), min(owed(cur, n - 1, cap), cap)
    else
      cur, prev = 0, n == 1 and cur or 0
    end
  end
  return start, cur, prev
end

local function window_state(s, start, cur, prev, l)
  local cap, win, algorithm = input[l + CAPACITY], input[l + WINDOW], input[l]
  if algorithm == CALENDAR then
    local _, ends = calendar_window(start, l)
    return {start, cur, s[M], s[LIVES], FIXED, ends - since}
  end
  local windows = 1
  if input[l + BELOW] > 0 then windows = windows_for(cur, cap, cap) end
  if algorithm == SLIDING and cur > 0 then windows = windows + 1 end
  return {start, cur, algorithm == FIXED and s[M] or prev, s[LIVES], algorithm, start + windows * win - since}
end

local function window_debt(at, s, cost, l, o)
  local cap, win, one, two = input[l + CAPACITY], input[l + WINDOW], input[l + STEP], input[l + STEPS]
  local fixed, want = input[l] == FIXED, cost > 1 and cost or 1
  local start, cur, prev = window(at, s, l)
  local rest = start + win - at
  if fixed then prev = 0 end
  local weighted = fixed and 0 or weigh(prev, rest, win, one, two)
  local ok, after = cost < 0 or want <= cap - cur - weighted, nil
  if ok and cost ~= 0 then
    if cost > 0 then
      cur = cur + cost
    else
      local back = min(-cost, cur + prev)
      local from = min(back, cur)
      cur, prev = cur - from, prev - (back - from)
      weighted = fixed and 0 or weigh(prev, rest, win, one, two)
    end
    after = window_state(s, start, cur, prev, l)
  end
  local retry, reset = 0, 0
  if fixed then
    reset = rest + (windows_for(cur, cap, cap) - 1) * win
  elseif cur > 0 then
    reset = rest + windows_for(cur, cap, cap) * win
  elseif prev > 0 then
    reset = rest
  end
  if want > cap then
    retry = NEVER
  elseif want > cap - cur - weighted then
    local n, room = windows_for(cur, want, cap), cap - want - cur
    if fixed then
      retry = rest + (n - 1) * win
    elseif room >= 0 then
      retry = rest - rest_for(prev, room, win, one, two)
    else
      retry = rest + n * win - rest_for(min(owed(cur, n - 1, cap), cap), cap - want - owed(cur, n, cap), win, one, two)
    end
  end
  o[OK], o[LEFT], o[RETRY], o[RESET] = ok, cap - cur - weighted, retry, reset
  return after
end
