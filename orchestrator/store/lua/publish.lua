-- Show the holder's view of a job.
--
-- KEYS: 1 lease  2 state
-- ARGV: 1 value ("token|node|incarnation")  2 state (JSON, with the token in it)
-- -> 1, or 0 where the lease is not the caller's
--
-- The state has no expiry, since nothing would renew it between two changes without a second key a
-- lease and beat. It cannot mislead: whoever reads it believes it only while the token in it is the
-- token of the lease.

if redis.pcall('GET', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[2], ARGV[2])
return 1
