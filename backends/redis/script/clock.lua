-- CLOCK: states that lie ahead of an op (limit/clock.go).
--   moved   returns the state s of key k, whose instant is after now, as it counts for an op with the limit at l
--   late    corrects the waits of an op that was charged after its request's instant: they count from that
-- uses: input, states, since, floor, ceil, min, max

local function moved(k, s, now, l)
  local algorithm, win = input[l], input[l + WINDOW]
  local life, start = win, now - now % win
  if algorithm == CALENDAR then
    if s[AT] < win then return s end
    start, life, win = input[l + BEGINS], input[l + ENDS] - input[l + BEGINS], 0
  elseif algorithm == BUCKET then
    life, start = floor((input[l + CAPACITY] * input[l + NUM] + input[l + DEN] - 1) / input[l + DEN]), now
    if life < win then win = life end
  elseif algorithm == SLIDING then
    life = 2 * win
  end
  local below = input[l + BELOW]
  if below > 0 and algorithm == BUCKET then
    win = win + ceil(below * input[l + NUM] / input[l + DEN])
  elseif below > 0 then
    local cap = input[l + CAPACITY]
    life = life - win + win * max(1, ceil(min(s[N], cap + below) / cap))
  end
  if s[AT] - now <= max(win, AHEAD) then return s end
  s = {start, s[N], s[M], s[LIVES], s[TAG], start + life - since}
  states[k] = s
  return s
end

local function late(now, o)
  local by = o[CHARGED] - now
  if by <= 0 then return end
  if o[RETRY] > 0 then o[RETRY] = o[RETRY] + by end
  if o[RESET] > 0 then o[RESET] = o[RESET] + by end
end
