-- Removes a user's hash if its configuration is not newer than a version.
-- KEYS[1] the hash; ARGV[1] the version.
local version = redis.call('HGET', KEYS[1], 'version')
if version and tonumber(version) <= tonumber(ARGV[1]) then
	redis.call('DEL', KEYS[1])
end
return 0
