-- RESERVED: what reservations need of windows and buckets (limit/settle.go).
--   owed        the units that a cost is beyond the amount of a lease; as_of: of a settlement
--   due         the units to charge or, if negative, to return, of units that were charged between two instants: 0 to
--               return if their window is over
--   held_back   state s of a bucket, refilled no further than reserved units allow
-- uses: input, since, calendar_window, max, min, ceil

local function owed(cost, as_of, amount)
  if as_of == BEYOND then cost = cost + amount end
  return max(cost, 0) - amount
end

local function due(s, now, from, till, units, l)
  if units >= 0 then return units end
  if till < from or from <= 0 then return 0 end
  if input[l] == BUCKET then return units end
  local at = max(now, min(s[AT], EXACT))
  local start = at - at % input[l + WINDOW]
  if input[l] == CALENDAR then start = calendar_window(at, l) end
  if from < start or s[AT] ~= start then return 0 end
  return units
end

local function held_back(s, now, reserved, l)
  local num, den = input[l + NUM], input[l + DEN]
  if reserved <= 0 or s[AT] > now or s[M] ~= num and s[M] > 0 then return s end
  local full = input[l + CAPACITY] * num
  local most, level = max(full - reserved * num, 0), s[M] > 0 and min(s[N], full) or full
  if min(level + (now - s[AT]) * den, full) <= most then return s end
  return {now, most, num, s[LIVES], BUCKET, now + ceil((full - most) / den) - since}
end
