-- Settle ticks, or orders, that do not run: many of one bucket in one call. Settled, counted and recorded in one.
--
-- KEYS: per settling: lease   (its tick, history and ages keys have the same stem, so the same slot)
-- ARGV: per settling: "until ms|how far ahead of the server's clock, ms|count|order ms or 0|keep entries|keep bytes",
--       value ("token|node|incarnation"), skipped | missed | doubt, entry, record (JSON)
-- -> per settling: what, the newest settled tick
--    settled  also what was settled already: it is neither counted nor recorded again
--    ahead    it lies too far ahead of the server's clock: nothing was changed
--    lost     the lease is not the caller's: nothing was changed
-- Ticks in doubt are missed ones, told also where they are settled already: after a loss of memory the schedule begins
-- behind them.

local now = server_ms()

local function settle(lease, numbers, value, what, entry, record)
  local till, ahead, count, order, keep, keep_bytes =
    string.match(numbers, '^(%d+)|(%d+)|(%d+)|(%d+)|(%d+)|(%d+)$')
  till, order = tonumber(till), tonumber(order)
  if redis.pcall('GET', lease) ~= value then return 'lost', 0 end
  local stem = string.sub(lease, 1, -#'lease' - 1)
  local ticks = stem .. 'tick'
  local last = past_ms((hget(ticks, 'last')), now) or 0
  local told = what == 'doubt' and order == 0
  heal(ticks, 'hash')
  if order > 0 then
    told = order > (past_ms((hget(ticks, 'obeyed')), now) or 0)
    if told then redis.call('HSET', ticks, 'obeyed', digits(order)) end
  elseif till > last then
    if till > now + tonumber(ahead) then return 'ahead', 0 end
    local counter = what == 'doubt' and 'missed' or what
    if whole((hget(ticks, 'since'))) then
      redis.call('HSET', ticks, counter, digits((whole((hget(ticks, counter))) or 0) + tonumber(count)))
    else
      begin_counts(ticks, till)
    end
    redis.call('HSET', ticks, 'last', digits(till))
    last, told = till, true
  end
  if told then write_entry(stem, entry, record, tonumber(keep), tonumber(keep_bytes), now) end
  return 'settled', last
end

local out = {}
for i = 1, #KEYS do
  local what, last = settle(KEYS[i], unpack(ARGV, 5 * i - 4, 5 * i))
  out[2 * i - 1], out[2 * i] = what, digits(last)
end
return out
