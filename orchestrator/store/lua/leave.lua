-- Take a node out of the membership, and nudge the others.
--
-- KEYS: 1 nodes  2 heads  3 infos
-- ARGV: 1 node  2 incarnation  3 nudge channel
-- -> 1, or 0 where another incarnation bears the name: nothing was done

local incarnation = string.match(hget(KEYS[2], ARGV[1]) or '', '^([^|]+)|')
if incarnation ~= ARGV[2] then return 0 end
redis.pcall('ZREM', KEYS[1], ARGV[1])
redis.pcall('HDEL', KEYS[2], ARGV[1])
redis.pcall('HDEL', KEYS[3], ARGV[1])
redis.pcall('PUBLISH', ARGV[3], '')
return 1
