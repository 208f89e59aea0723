-- TOKEN BUCKET: decides an op (limit/step_bucket.go). It is text within a function or loop.
--   now, cost, want, cap, one, two   the op and its limit: a unit comes back in one / two microseconds
--   at, n, m               the state, which becomes that with the op recorded, if records; it is needed until ends
--   ok, left, retry, reset the outcome
-- uses: now, cost, want, cap, one, at, n, m, ok, left, retry, reset, records, ends, min, floor, two

local brim, level
--@include bucket_level.lua
ok, retry, records = cost < 0 or want <= floor(level / one), 0, false
if ok and cost ~= 0 then
  records = true
  if cost > 0 then
    level = level - cost * one
  else
    level = level + min(min(-cost, cap) * one, brim - level)
  end
end
left, reset = floor(level / one), floor((brim - level + two - 1) / two)
if want > cap then
  retry = NEVER
elseif want * one > level then
  retry = floor((want * one - level + two - 1) / two)
end
if records then at, n, m, ends = now, level, one, now + reset end
