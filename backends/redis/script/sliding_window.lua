-- SLIDING WINDOW: decides an op (limit/step_window.go). It is text within a function or loop.
--   now, cost, want, cap, win, one, two   the op and its limit: a window has two parts of one
--   start                  its window
--   at, n, m               the state, which becomes that with the op recorded, if records; it is needed until ends
--   ok, left, retry, reset the outcome
-- uses: now, cost, want, cap, win, one, two, start, at, n, m, ok, left, retry, reset, records, ends, weigh, rest_for,
--   min

if at < start then
  n, m = 0, at < start - win and 0 or n
end
local rest = start + win - now
local weighted = weigh(m, rest, win, one, two)
ok, retry, reset, records = cost < 0 or want <= cap - min(n + weighted, EXACT), 0, 0, false
if ok and cost ~= 0 then
  if cost > 0 then
    n = n + cost
  else
    local back = min(-cost, n + m)
    local from = min(back, n)
    n, m = n - from, m - (back - from)
    weighted = weigh(m, rest, win, one, two)
  end
  records, at, ends = true, start, start + (n > 0 and 2 * win or win)
end
left = cap - n - weighted
if n > 0 then
  reset = rest + win
elseif m > 0 then
  reset = rest
end
if want > cap then
  retry = NEVER
elseif want > left then
  local room = cap - want - n
  if room >= 0 then
    retry = rest - rest_for(m, room, win, one, two)
  else
    retry = rest + win - rest_for(n, cap - want, win, one, two)
  end
end
