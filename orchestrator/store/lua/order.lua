-- Give a standing order for jobs, and nudge the nodes.
--
-- KEYS: 1 intents (hash: job -> "at ms|JSON {want, who, why}", and triggers: see trigger.lua)  2 version of the intents
-- ARGV: 1 nudge channel  2 JSON {want, who, why}  3.. jobs
-- -> server ms of the order, which is also the new version: strictly greater than every earlier one, also
--    than those the store forgot, so that nobody who remembers an old order takes it for a newer one
-- Over an order to be stopped or paused the new one says since when the job was so ("off_ms"), over several of
-- them since the first: whoever runs it again tells by that what was due meanwhile.

local function off_since(standing)
  local at, said = string.match(standing or '', '^(%d+)|(.*)$')
  if not whole(at) then return nil end
  local fine, words = pcall(cjson.decode, said)
  if not fine or type(words) ~= 'table' or words.want ~= 'stopped' and words.want ~= 'paused' then return nil end
  local earlier = words.off_ms
  if type(earlier) == 'number' and earlier > 0 and earlier < tonumber(at) then return digits(earlier) end
  return at
end

local at = digits(math.max(server_ms(), (whole((get(KEYS[2]))) or 0) + 1))
heal(KEYS[1], 'hash')
for i = 3, #ARGV do
  local words, off = ARGV[2], off_since((hget(KEYS[1], ARGV[i])))
  if off then words = string.sub(words, 1, -2) .. ', "off_ms": ' .. off .. '}' end
  redis.call('HSET', KEYS[1], ARGV[i], at .. '|' .. words)
end
redis.call('SET', KEYS[2], at)
redis.pcall('PUBLISH', ARGV[1], '')
return at
