-- Write how runs ended, many of one bucket in one call. Not fenced by the lease: a run that ends after a hand-over is
-- recorded all the same, but never over what a newer holder wrote, and repeating a record changes nothing.
--
-- KEYS: per record: last (hash: token, run, record)   (its tick, history, ages and successes keys have the same stem)
-- ARGV: 1 nudge channel, then per record: "token|keep entries|keep bytes|1 if the run's own node says it, else 0|
--       failures in a row, '' as they were|how many names follow", run, record (JSON), mark of the run that waits
--       for another attempt ('': it is open no more), names that are nudged since it succeeded
-- -> how many of them told anything new
--
-- 1. What the node of a run says stands; a successor, who can only say that it was lost, never writes over it.
-- 2. An open run is closed or kept waiting only if it is open, and not under a newer token: what a successor closed,
--    or runs again, is neither closed nor opened by an old holder.
-- 3. `last` and the count of failures follow the newest token.

local now = server_ms()

-- whether it was closed by this very call
local function keep_open(ticks, run, token, mark)
  local standing = hget(ticks, 'run:' .. run)
  if not standing then return false end
  if (whole(string.match(standing, '"token":(%d+)')) or 0) > token then return false end
  if mark == '' then
    redis.call('HDEL', ticks, 'run:' .. run)
  else
    redis.call('HSET', ticks, 'run:' .. run, mark)
  end
  return mark == ''
end

local function count_failures(ticks, failures)
  heal(ticks, 'hash')
  redis.call('HSET', ticks, 'failures', digits(failures))
  if failures > 0 then redis.call('HSET', ticks, 'failed', digits(now)) end
end

local MOST_SUCCESSES = 100

-- instants that strictly grow, whatever the clock does: whoever waits for them asks for what is newer
local function succeed(successes, run)
  heal(successes, 'zset')
  -- written by people, or under a clock that was wrong: what follows would wait until that time has come
  redis.call('ZREMRANGEBYSCORE', successes, digits(now + 1000), '+inf')
  local newest = whole(redis.call('ZREVRANGE', successes, 0, 0, 'WITHSCORES')[2]) or 0
  redis.call('ZADD', successes, 'NX', digits(math.max(now, newest + 1)), run)
  redis.call('ZREMRANGEBYRANK', successes, 0, -MOST_SUCCESSES - 1)
end

-- whether it told anything new
local function record(last, numbers, run, said, mark)
  local token, keep, keep_bytes, witness, failures = string.match(numbers, '^(%d+)|(%d+)|(%d+)|([01])|(%d*)|')
  token, witness, failures = tonumber(token), witness == '1', whole(failures)
  local stem = string.sub(last, 1, -#'last' - 1)
  local closed = keep_open(stem .. 'tick', run, token, mark)
  local standing = redis.pcall('HGET', stem .. 'history', run)
  if type(standing) ~= 'string' then standing = nil end
  if standing == said or standing and not witness then
    if closed and failures then count_failures(stem .. 'tick', failures) end -- it is not tried again, after all
    return false
  end

  local newest = whole((hget(last, 'token'))) or 0
  local is_last = hget(last, 'run') == run
  if newest <= token and (witness or not is_last) or witness and is_last then
    heal(last, 'hash')
    redis.call('HSET', last, 'token', digits(math.max(token, newest)), 'run', run, 'record', said)
  end
  if failures and newest <= token then count_failures(stem .. 'tick', failures) end
  write_entry(stem, run, said, tonumber(keep), tonumber(keep_bytes), now)
  return true
end

local new, at = 0, 2
for i = 1, #KEYS do
  local names = tonumber(string.match(ARGV[at], '|(%d+)$'))
  if record(KEYS[i], unpack(ARGV, at, at + 3)) then
    new = new + 1
    if names > 0 then succeed(string.sub(KEYS[i], 1, -#'last' - 1) .. 'successes', ARGV[at + 1]) end
    for j = at + 4, at + 3 + names do redis.pcall('PUBLISH', ARGV[1], ARGV[j]) end
  end
  at = at + 4 + names
end
return new
