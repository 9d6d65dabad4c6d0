-- Write how the last run ended. Fenced by its token and not by the lease: a run that ends after a
-- hand-over may still be recorded, but never over a newer run's record.
--
-- KEYS: 1 last (hash: token, run, record)
-- ARGV: 1 token  2 run  3 record (JSON)
-- -> 1, or 0 where a newer token's record stands

local newest = whole((hget(KEYS[1], 'token'))) or 0
if newest > tonumber(ARGV[1]) then return 0 end
heal(KEYS[1], 'hash')
redis.call('HSET', KEYS[1], 'token', ARGV[1], 'run', ARGV[2], 'record', ARGV[3])
return 1
