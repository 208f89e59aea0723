-- FIXED WINDOW: decides an op (limit/step_window.go). It is text within a function or loop.
--   now, cost, want, cap   the op: its instant, which is not before the state's, its cost, what it needs, its capacity
--   start, ends            its window
--   at, n                  the state, which becomes that with the op recorded, if records
--   ok, left, retry, reset the outcome, which it sets
-- uses: now, cost, want, cap, start, ends, at, n, ok, left, retry, reset, records

if at < start then n = 0 end
left, reset = cap - n, ends - now
ok, retry, records = cost < 0 or want <= left, 0, false
if ok and cost ~= 0 then
  n = n + cost
  if n < 0 then n = 0 end
  records, at, left = true, start, cap - n
end
if want > cap then
  retry = NEVER
elseif want > left then
  retry = reset
end
