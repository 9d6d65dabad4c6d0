-- Order one run of a job, and nudge the nodes.
--
-- KEYS: 1 intents (hash: "!order ms" -> "order ms|JSON {job, tick, who, why}", among the standing orders of order.lua:
--       no job's name has a "!")  2 version of the intents
-- ARGV: 1 nudge channel  2 JSON {job, tick, who, why}
-- -> server ms of the order, which is also the new version; strictly greater than every earlier one
--    an error where too many of them wait
-- The field "!" stays when the last one is forgotten: a version without intents means that the store lost them.

local KEPT_MS = 600000 -- whoever asked has gone away by then
local MOST_TRIGGERS = 1000

local now, version = server_ms(), whole((get(KEYS[2]))) or 0
heal(KEYS[1], 'hash')
local waiting = 0
for _, field in ipairs(redis.call('HKEYS', KEYS[1])) do
  local at = string.match(field, '^!(.+)$')
  if at then
    at = whole(at)
    -- one that is later than every order was not given by us
    if at and at > now - KEPT_MS and at <= math.max(now, version) then
      waiting = waiting + 1
    else
      redis.call('HDEL', KEYS[1], field)
    end
  end
end
if waiting >= MOST_TRIGGERS then
  return redis.error_reply('ERR ' .. waiting .. ' triggers wait for their runs: no more are taken')
end

local at = digits(math.max(now, version + 1))
redis.call('HSET', KEYS[1], '!' .. at, at .. '|' .. ARGV[2], '!', '')
redis.call('SET', KEYS[2], at)
redis.pcall('PUBLISH', ARGV[1], '')
return at
