-- BUCKET LEVEL: what a token bucket holds at an instant that is not before its state's. It is text within a function.
--   now, cap, one, two     the instant and the limit: a unit comes back in one / two microseconds
--   at, n, m               the state
--   brim, level            what the bucket can hold and what it holds, in parts of a unit
-- uses: now, cap, one, two, at, n, m, min, floor, brim, level

brim = cap * one
level = brim
if m > 0 then
  level = n
  if m ~= one then level = min(floor(level / m), cap) * one end
  if now - at < floor((brim - level + two - 1) / two) then
    level = level + (now - at) * two
  else
    level = brim
  end
end
