-- WEIGHTS: how a sliding window weighs the window before it (limit/step_window.go).
--   weigh      how much of count units of a window still counts when rest microseconds of the next one are left
--   rest_for   the largest rest of a window at which count units of the one before weigh at most room
-- uses: floor, max, weigh, rest_for

function weigh(count, rest, win, step, steps)
  if count > MOST_WEIGHED then count = MOST_WEIGHED end
  return floor((count * (steps - floor((win - rest) / step)) + steps - 1) / steps)
end

function rest_for(count, room, win, step, steps)
  if count > MOST_WEIGHED then count = MOST_WEIGHED end
  if count <= room then return win end
  return max(win - (steps - floor(room * steps / count)) * step, 0)
end
