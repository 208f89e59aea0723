-- Adds a block of units to a user's hash, or makes the hash.
-- KEYS[1] the hash; ARGV: version, windowStart, rateLimit, from, to, milliseconds left.
-- Returns 'put', or 'newer' if the hash is of a newer configuration or window: then the block
-- is lost.
local master = string.match(redis.call('INFO', 'replication'), 'master_replid:(%x+)')
local version, start = tonumber(ARGV[1]), tonumber(ARGV[2])
local from, to = tonumber(ARGV[4]), tonumber(ARGV[5])
local h = redis.call('HMGET', KEYS[1], 'version', 'windowStart', 'currentCount', 'reserved', 'master')
local count = from
if h[5] and h[5] == master then
	local theirVersion, theirStart = tonumber(h[1]), tonumber(h[2])
	if theirVersion > version or theirVersion == version and theirStart > start then
		return 'newer'
	end
	if theirVersion == version and theirStart == start then
		-- Units that are left of earlier blocks stay. They are counted from the end, as blocks
		-- need not be next to each other nor arrive in their order.
		local left = tonumber(h[4]) - tonumber(h[3]) + to - from
		to = math.max(to, tonumber(h[4]))
		count = to - left
	end
end
redis.call('DEL', KEYS[1])
redis.call('HSET', KEYS[1], 'rateLimit', ARGV[3], 'currentCount', string.format('%d', count), 'version', ARGV[1],
	'windowStart', ARGV[2], 'reserved', string.format('%d', to), 'master', master)
redis.call('PEXPIRE', KEYS[1], ARGV[6])
return 'put'
