-- Take away a trigger that was obeyed or refused.
--
-- KEYS: 1 intents
-- ARGV: 1 order ms
-- -> 1, or 0 where it was gone

local said = redis.pcall('HDEL', KEYS[1], '!' .. ARGV[1])
return type(said) == 'number' and said or 0
