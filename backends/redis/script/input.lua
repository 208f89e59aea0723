-- INPUT: the slice, and the time of this server.
--   input, size   the doubles of ARGV[1], and how many they are
--   limits        where the first limit is
--   precise       the server's clock; second, and clock, which is the same in the steps of the layout
-- uses: unpack_, rep, call, tonumber

local blob = ARGV[1]
local size, input = #blob / 8, {}
for from = 0, size - 1, MOST do
  local count = MOST < size - from and MOST or size - from
  local part = {unpack_('<' .. rep('d', count), blob, 8 * from + 1)}
  if from == 0 then
    input = part
  else
    for i = 1, count do input[from + i] = part[i] end
  end
end
local limits = size - LIMIT_SIZE * input[LIMITS] + 1
local time = call('TIME')
local second = tonumber(time[1])
local precise = second * 1000000 + time[2]
local clock = input[FLAGS] % 2 == FLAG_ZSET and precise - precise % 1000 or precise
