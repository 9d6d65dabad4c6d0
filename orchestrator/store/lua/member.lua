-- Say that a node lives and learn who else does. Expiries are server times.
--
-- KEYS: 1 nodes (zset: node -> expiry ms)  2 heads (hash: node -> "incarnation|since ms|ttl ms|revision|state id")
--       3 infos (hash: node -> JSON)  4 version of the intents  5 intents
-- ARGV: 1 node  2 incarnation  3 ttl ms  4 revision of the info  5 state id  6 info
--       7 how long a dead member is remembered, ms
-- -> {'seen', server ms, version of the intents, then per live member: node, incarnation, since ms, revision}
--    {'refused', server ms, 1 if it has our state id else 0, its incarnation, ms left, its info}:
--       a live node bears this name; nothing was changed

local now = server_ms()
local node, ttl = ARGV[1], tonumber(ARGV[3])

local function head(of)
  local incarnation, since, its_ttl, revision, state =
    string.match(hget(KEYS[2], of) or '', '^([^|]+)|(%d+)|(%d+)|([^|]*)|(.*)$')
  if incarnation and whole(since) and whole(its_ttl) then
    return {incarnation = incarnation, since = since, ttl = tonumber(its_ttl), revision = revision, state = state}
  end
  return nil
end

heal(KEYS[1], 'zset')
heal(KEYS[2], 'hash')
heal(KEYS[3], 'hash')
heal(KEYS[5], 'hash')

local mine = head(node)
local left = tonumber(redis.call('ZSCORE', KEYS[1], node) or '0') - now
if mine and mine.incarnation ~= ARGV[2] and left > 0 then
  -- an expiry further off than its ttl was written before the server's clock was set back
  left = math.min(left, mine.ttl)
  redis.call('ZADD', KEYS[1], digits(now + left), node)
  local same = mine.state == ARGV[5] and 1 or 0
  return {'refused', digits(now), same, mine.incarnation, left, redis.call('HGET', KEYS[3], node) or ''}
end

local since = mine and mine.incarnation == ARGV[2] and mine.since or digits(now)
local fresh = table.concat({ARGV[2], since, ARGV[3], ARGV[4], ARGV[5]}, '|')
redis.call('ZADD', KEYS[1], digits(now + ttl), node)
if redis.call('HGET', KEYS[2], node) ~= fresh or redis.call('HEXISTS', KEYS[3], node) == 0 then
  redis.call('HSET', KEYS[2], node, fresh)
  redis.call('HSET', KEYS[3], node, ARGV[6])
end

for _, dead in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', digits(now - tonumber(ARGV[7])))) do
  redis.call('ZREM', KEYS[1], dead)
  redis.call('HDEL', KEYS[2], dead)
  redis.call('HDEL', KEYS[3], dead)
end

-- a version without intents is what is left of lost ones: 0 makes the nodes put theirs back
local version = redis.call('EXISTS', KEYS[5]) == 1 and whole((get(KEYS[4]))) or 0
local out = {'seen', digits(now), digits(version)}
local live = redis.call('ZRANGEBYSCORE', KEYS[1], '(' .. digits(now), '+inf', 'WITHSCORES')
for i = 1, #live, 2 do
  local its = head(live[i])
  if its then
    if tonumber(live[i + 1]) > now + its.ttl then redis.call('ZADD', KEYS[1], digits(now + its.ttl), live[i]) end
    local n = #out
    out[n + 1], out[n + 2], out[n + 3], out[n + 4] = live[i], its.incarnation, its.since, its.revision
  end
end
return out
