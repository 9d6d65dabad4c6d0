-- Put before the scripts that write history: the entries of one lease, bounded by their number and their bytes.
--
-- history: hash, entry -> record, and `bytes`, the length of all records together
-- ages:    zset, entry -> server ms when it was first written, strictly increasing: the order in which they go
--
-- `bytes` lives and dies with the records it counts. Where it makes no sense, or the two keys do not have the same
-- entries any more (people deleted one of them), both are set right before anything is dropped.

local MOST_ENTRIES = 10000 -- many more were not written by us
local LONGEST_ENTRY = 65536 -- bytes; a longer one is not kept even alone

-- count the bytes anew, and give each record its age: unknown ones are the oldest
local function recount(history, ages)
  local known, old = redis.call('HGETALL', history), redis.call('ZRANGE', ages, 0, -1, 'WITHSCORES')
  local age, bytes = {}, 0
  for i = 1, #old, 2 do age[old[i]] = whole(old[i + 1]) end
  redis.call('DEL', ages)
  for i = 1, #known, 2 do
    if known[i] ~= 'bytes' then
      bytes = bytes + #known[i + 1]
      redis.call('ZADD', ages, digits(age[known[i]] or 0), known[i])
    end
  end
  return bytes, redis.call('ZCARD', ages)
end

local function drop_oldest(history, ages)
  local oldest = redis.call('ZPOPMIN', ages)[1]
  local bytes = redis.call('HSTRLEN', history, oldest)
  redis.call('HDEL', history, oldest)
  return bytes
end

-- write a record, over an older one of the same entry, and drop the oldest entries until all of it fits
local function write_entry(stem, entry, record, keep, keep_bytes, now)
  local history, ages = stem .. 'history', stem .. 'ages'
  heal(history, 'hash')
  heal(ages, 'zset')
  local most = 2 * math.max(keep, MOST_ENTRIES)
  if redis.call('HLEN', history) > most or redis.call('ZCARD', ages) > most then redis.call('DEL', history, ages) end
  local counted = hget(history, 'bytes')
  local bytes = whole(counted)
  bytes = bytes and bytes - redis.call('HSTRLEN', history, entry) + #record
  redis.call('HSET', history, entry, record, 'bytes', digits(bytes or 0))
  local newest = whole(redis.call('ZREVRANGE', ages, 0, 0, 'WITHSCORES')[2]) or 0
  redis.call('ZADD', ages, 'NX', digits(math.max(now, newest + 1)), entry)
  local entries = redis.call('ZCARD', ages)
  if not bytes or bytes < 0 or redis.call('HLEN', history) - 1 ~= entries then
    bytes, entries = recount(history, ages)
  end
  while entries > 1 and (entries > keep or bytes > keep_bytes) do
    bytes, entries = bytes - drop_oldest(history, ages), entries - 1
  end
  if bytes > math.max(keep_bytes, LONGEST_ENTRY) then
    redis.call('DEL', history, ages)
  else
    redis.call('HSET', history, 'bytes', digits(math.max(0, bytes)))
  end
end
