-- PRELUDE: what scripts use of Lua and Redis, as locals, which are faster than globals.
-- uses: struct, string, redis, math

local unpack_, pack, rep = struct.unpack, struct.pack, string.rep
local call, pcall_ = redis.call, redis.pcall
local floor, ceil, min, max = math.floor, math.ceil, math.min, math.max
local keys = KEYS
