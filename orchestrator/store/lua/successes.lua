-- When a job succeeded; changes nothing.
--
-- KEYS: 1 successes (zset: run -> server ms)
-- ARGV: 1 only what is newer than this, ms
-- -> the newest hundred of these instants, ms, newest first

local MOST_SUCCESSES = 100

local found = redis.pcall('ZREVRANGEBYSCORE', KEYS[1], '+inf', '(' .. ARGV[1], 'WITHSCORES', 'LIMIT', 0, MOST_SUCCESSES)
local out = {}
if found.err then return out end
for i = 2, #found, 2 do
  if whole(found[i]) then out[#out + 1] = found[i] end
end
return out
