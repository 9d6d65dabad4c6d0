-- Put intents that a node remembers back after the store lost them. Job by job: one that stands there and
-- is not older than ours (it was ordered after the loss) stays.
--
-- KEYS: 1 intents (hash: job -> "at ms|JSON {want, who, why}")  2 version of the intents
-- ARGV: 1 version  then per intent: job, at ms, JSON {want, who, why}
-- -> the version that stands now

local version = whole((get(KEYS[2]))) or 0
local changed = false
heal(KEYS[1], 'hash')
for i = 2, #ARGV, 3 do
  local at = whole(string.match(hget(KEYS[1], ARGV[i]) or '', '^(%d+)|'))
  if not at or at < tonumber(ARGV[i + 1]) then
    redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1] .. '|' .. ARGV[i + 2])
    changed = true
  end
end
local wanted = math.max(version, tonumber(ARGV[1]))
-- intents were added under a version that some nodes know already: they must look again
if changed and wanted == version then wanted = version + 1 end
if wanted > version then redis.call('SET', KEYS[2], digits(wanted)) end
return digits(wanted)
