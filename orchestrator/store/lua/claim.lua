-- Claim starts before they are made, many of one bucket in one call: at most one claim of a start ever succeeds.
--
-- KEYS: per claim: lease   (its tick and history keys have the same stem, so the same slot)
-- ARGV: per claim: "tick ms|how far ahead of the server's clock, ms|order ms or 0", value ("token|node|incarnation"),
--       run, mark (what is kept of the open run), the run whose place it takes or ''
--       A claim of three kinds: of another attempt (it takes a run's place), ordered (order ms), else scheduled.
-- -> per claim: what, last (the newest settled tick)
--    claimed    it is the caller's to make (also when the same claim is made again: its answer was lost)
--    duplicate  it was made or settled: the tick, or a newer one; the order, or a newer one; the attempt
--    ahead      a scheduled tick lies too far ahead of the server's clock
--    lost       the lease is not the caller's
--
-- A copy of a claim that the network delivers late, after its run has ended, must be refused. A tick is at most the
-- last one then, an order was obeyed, and another attempt finds the run open no more whose place it would take: only
-- where the tick key lost its memory (it names no schedule) the holder is believed, unless history knows the run.

local now = server_ms()

local function was_attempted(stem, run, remembers, open)
  return redis.pcall('HEXISTS', stem .. 'history', run) == 1 or remembers and not open
end

local function claim(lease, numbers, value, run, mark, instead)
  local tick, ahead, order = string.match(numbers, '^(%d+)|(%d+)|(%d+)$')
  local stem = string.sub(lease, 1, -#'lease' - 1)
  local ticks = stem .. 'tick'
  if redis.pcall('GET', lease) ~= value then return 'lost', 0 end
  local scheduled = instead == '' and tonumber(order) == 0
  if scheduled and tonumber(tick) > now + tonumber(ahead) then return 'ahead', 0 end

  -- One look and one write: a thousand claims of one second wait for each other.
  local known = redis.pcall('HMGET', ticks, 'last', 'run:' .. run, 'obeyed', 'ran', 'schedule', 'run:' .. instead,
    'since')
  if known.err then
    heal(ticks, 'hash')
    known = {}
  end
  local last = past_ms(known[1], now) or 0
  if known[2] == mark then return 'claimed', last end
  if instead ~= '' then
    if was_attempted(stem, run, known[5], known[6]) then return 'duplicate', last end
    redis.call('HDEL', ticks, 'run:' .. instead)
    redis.call('HSET', ticks, 'run:' .. run, mark)
  elseif scheduled then
    if tonumber(tick) <= last then return 'duplicate', last end
    if not whole(known[7]) then begin_counts(ticks, tonumber(tick) - 1) end
    local ran = whole(known[7]) and whole(known[4]) or 0
    redis.call('HSET', ticks, 'last', tick, 'ran', digits(ran + 1), 'run:' .. run, mark)
    last = tonumber(tick)
  else
    if tonumber(order) <= (past_ms(known[3], now) or 0) then return 'duplicate', last end
    redis.call('HSET', ticks, 'obeyed', order, 'run:' .. run, mark)
  end
  return 'claimed', last
end

local out = {}
for i = 1, #KEYS do
  local what, last = claim(KEYS[i], unpack(ARGV, 5 * i - 4, 5 * i))
  out[2 * i - 1], out[2 * i] = what, digits(last)
end
return out
