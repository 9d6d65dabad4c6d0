-- Give a lease back, leave the note that it was released cleanly, and nudge the standbys.
--
-- KEYS: 1 lease  2 released
-- ARGV: 1 value ("token|node|incarnation")  2 epoch as the caller knows it  3 next node or ''
--       4 how long the others leave it to that node, ms  5 how long the note is kept, ms
--       6 nudge channel  7 job
-- -> 1, or 0 where the lease was not ours: nothing was done

if redis.pcall('GET', KEYS[1]) ~= ARGV[1] then return 0 end
local token = lease_parts(ARGV[1])
redis.call('DEL', KEYS[1])
redis.pcall('SET', KEYS[2], table.concat({digits(token), ARGV[3], digits(server_ms() + tonumber(ARGV[4])), ARGV[2]}, '|'),
  'PX', ARGV[5])
redis.pcall('PUBLISH', ARGV[6], ARGV[7])
return 1
