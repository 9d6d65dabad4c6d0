-- Claim a tick before its run starts: at most one claim of a tick ever succeeds.
--
-- KEYS: 1 lease  2 tick (hash: last, the newest claimed tick; cur, "tick|token|run" of that claim; schedule)
-- ARGV: 1 value ("token|node|incarnation")  2 tick ms  3 run  4 how far ahead of the server's clock, ms
-- -> {what, last tick ms}
--    claimed    it is the caller's to run (also when the same claim is made again: its answer was lost)
--    duplicate  this tick or a newer one was claimed
--    ahead      it lies too far ahead of the server's clock
--    lost       the lease is not the caller's

if redis.pcall('GET', KEYS[1]) ~= ARGV[1] then return {'lost', '0'} end
local tick = tonumber(ARGV[2])
if tick > server_ms() + tonumber(ARGV[4]) then return {'ahead', '0'} end
local last = whole((hget(KEYS[2], 'last'))) or 0
local claim = ARGV[2] .. '|' .. digits((lease_parts(ARGV[1]))) .. '|' .. ARGV[3]
if redis.pcall('HGET', KEYS[2], 'cur') == claim then return {'claimed', digits(last)} end
if tick <= last then return {'duplicate', digits(last)} end
heal(KEYS[2], 'hash')
redis.call('HSET', KEYS[2], 'last', ARGV[2], 'cur', claim)
return {'claimed', ARGV[2]}
