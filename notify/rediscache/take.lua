-- Takes a unit of a user's block, or says why there is none.
-- KEYS[1] the hash; ARGV[1] 1, or 0 to take none and only say what there is.
-- Returns {status, rateLimit, currentCount, version, windowStart, milliseconds left}.
--
-- A hash that was written under another master, or in another life of this one, is not believed:
-- it may be older than what was answered, as after a failover, or after one and back again. Redis
-- makes a new replication id when a master starts, when a replica becomes the master, and when a
-- master gets its first replica.
local master = string.match(redis.call('INFO', 'replication'), 'master_replid:(%x+)')
local h = redis.call('HMGET', KEYS[1], 'rateLimit', 'currentCount', 'version', 'windowStart', 'reserved', 'master')
local left = redis.call('PTTL', KEYS[1])
if not h[6] or h[6] ~= master or left < 0 then
	return {'miss', '0', '0', '0', '0', 0}
end
local limit, count, reserved = tonumber(h[1]), tonumber(h[2]), tonumber(h[5])
local status = 'ok'
if count >= limit then
	status = 'limited'
elseif count >= reserved then
	status = 'exhausted'
else
	if ARGV[1] == '1' then
		count = redis.call('HINCRBY', KEYS[1], 'currentCount', 1)
	end
	-- A quarter of a block, which is a sixteenth of the limit and at most 1000.
	if reserved < limit and reserved - count <= math.min(limit / 64, 250) then
		status = 'low' -- taken, and the block should grow
	end
end
return {status, h[1], tostring(count), h[3], h[4], left}
