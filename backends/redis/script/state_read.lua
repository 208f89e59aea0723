-- READ A STATE: takes a value apart. It is text within a function or loop.
-- A state is a string of 28 bytes: its tag, the three figures of limit.State, the first in seven bytes (28 fit a
-- smaller piece of Redis' memory than 29), and the second until which the key is known to live. A fixed window that is
-- charged by itself can be a whole number instead: see FIRST_START in constants.lua.
--   raw                    the value
--   second                 the second of the server's clock
--   tag, at, n, m, lives   the state; the tag is unchanged if raw is no state
-- uses: raw, second, tag, at, n, m, lives, unpack_, tonumber

if #raw == 28 then
  tag, at, n, m, lives = unpack_('<BI7ddI4', raw)
elseif #raw == 19 then
  local start, units = tonumber(raw:sub(1, 9)), tonumber(raw:sub(10))
  if start and units and start >= FIRST_START and start < FIRST_START + STARTS and start % 1 == 0 then
    tag, n, m, lives = FIXED, units, 0, NUMBERED
    at = (second + (start - FIRST_START - second + STARTS / 2) % STARTS - STARTS / 2) * 1000000
  end
end
