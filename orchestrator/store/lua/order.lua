-- Give a standing order for jobs, and nudge the nodes.
--
-- KEYS: 1 intents (hash: job -> "at ms|JSON {want, who, why}")  2 version of the intents
-- ARGV: 1 nudge channel  2 JSON {want, who, why}  3.. jobs
-- -> server ms of the order, which is also the new version: strictly greater than every earlier one, also
--    than those the store forgot, so that nobody who remembers an old order takes it for a newer one

local at = digits(math.max(server_ms(), (whole((get(KEYS[2]))) or 0) + 1))
heal(KEYS[1], 'hash')
for i = 3, #ARGV do redis.call('HSET', KEYS[1], ARGV[i], at .. '|' .. ARGV[2]) end
redis.call('SET', KEYS[2], at)
redis.pcall('PUBLISH', ARGV[1], '')
return at
