-- Ask for one lease.
--
-- KEYS: 1 lease  2 token (the last one issued)  3 released (what was last released cleanly)  4 epoch  5 tick
--       6 alive (until when a lease that was put back lives)  7 last (how the last run ended)
-- ARGV: 1 node  2 incarnation  3 ttl ms  4 longest ttl ms known for this job, ours or the holder's
--       5 floor: the highest token this node ever saw  6 seen: token of a foreign lease that by the caller's
--       clock cannot have run out yet, 0 none  7 ran: highest token this incarnation ran or released
--       8 epoch as the caller knows it  9 server ms the caller expects now  10 by how much it may be off, ms
--       11 '1' in quarantine: only a lease that was cleanly released under this epoch may be taken
--       12 identity of the schedule, '' for a service (then the tick key is not touched)  13 ticks up to here are settled, ms
-- -> {what, token or detail, ms, server ms, last tick ms, record of the last run: of a service, else '';
--     of a cron that is granted or adopted: failed ticks in a row, server ms of the last of them, the newest order
--     that was obeyed, then per open run: run, mark}
--    granted  token, the lease is ours          adopted     token, it was ours already: an answer was lost
--    held     value, ms left                    hint        next node, ms left: it was left to another node
--    vanished it cannot have run out (seen)     young       ms to wait: it was issued or put back less than a ttl ago
--    quarantine                                 epoch       the epoch as it is
--    clock    the server's clock is not what the caller expects (or this call is late)
-- Nothing is changed unless it is granted or adopted, but for a lease without an expiry, which somebody
-- set by hand: it gets the longest ttl, so that it cannot block the job for ever.

local node, ttl, longest = ARGV[1], ARGV[3], tonumber(ARGV[4])
local owner = node .. '|' .. ARGV[2]
local now = server_ms()

local function refuse(what, detail, wait) return {what, detail, wait, digits(now), '0', '', '0', '0', '0'} end

-- A new or edited schedule never fires for the past; a server whose clock is ahead must not silence it either.
-- A newest tick without a schedule was claimed after the server lost its memory: it still tells where to go on.
-- What ran, was skipped or missed is counted from there.
local function last_tick()
  if ARGV[12] == '' then return '0' end
  local last = past_ms((hget(KEYS[5], 'last')), now)
  local schedule = last and redis.pcall('HGET', KEYS[5], 'schedule')
  local known = last and schedule == ARGV[12]
  local counted = whole((hget(KEYS[5], 'since')))
  if known and counted then return digits(last) end
  if last and not schedule and counted then
    redis.call('HSET', KEYS[5], 'schedule', ARGV[12])
    return digits(last)
  end
  if not last or schedule and not known then last = math.max(last or 0, math.min(now, tonumber(ARGV[13]))) end
  heal(KEYS[5], 'hash')
  redis.call('HSET', KEYS[5], 'schedule', ARGV[12], 'last', digits(last))
  begin_counts(KEYS[5], last)
  return digits(last)
end

-- A service that came to its end for good is not started again by whoever gets the lease next.
local function last_run()
  return ARGV[12] == '' and hget(KEYS[7], 'record') or ''
end

local function grant(what, token)
  local out = {what, digits(token), 0, digits(now), last_tick(), last_run()}
  for i, field in ipairs({'failures', 'failed', 'obeyed'}) do
    out[6 + i] = digits(ARGV[12] ~= '' and past_ms((hget(KEYS[5], field)), now) or 0)
  end
  if ARGV[12] ~= '' then append_open_runs(out, KEYS[5]) end
  return out
end

local epoch = get(KEYS[4]) or ''
-- A promoted replica brings the epoch of the server it copied: until somebody has met it (meet.lua), its
-- data may be older than that epoch claims. Found by the simulation: a taker in that very window made two.
if epoch ~= ARGV[8] or string.match(epoch, '|(%w+)$') ~= server_run_id() then return refuse('epoch', epoch, 0) end
if math.abs(now - tonumber(ARGV[9])) > tonumber(ARGV[10]) then return refuse('clock', '', 0) end

local value = get(KEYS[1])
local held, holder = lease_parts(value)
if held and holder ~= owner then
  local left = redis.call('PTTL', KEYS[1])
  if left == -1 then
    redis.call('PEXPIRE', KEYS[1], longest)
    left = longest
  end
  return refuse('held', value, left)
end
if held and held > tonumber(ARGV[7]) then
  redis.call('PEXPIRE', KEYS[1], ttl)
  return grant('adopted', held)
end

-- An absent lease is not yet a free one. Nor is our own with a token that we ran or released already: it gets a
-- new token in place (a release of the old one may still be on its way), but a stale replica may have brought it
-- back after somebody else took over. Found by the simulation: a hand-over just before a failover made two.
local issued = whole((get(KEYS[2]))) or 0
local released, next_node, till, under = released_parts((get(KEYS[3])))
if ARGV[11] == '1' and not (issued > 0 and released == issued and under == epoch) then
  return refuse('quarantine', '', 0)
end
if tonumber(ARGV[6]) > released then return refuse('vanished', '', 0) end
if not held then
  -- A token is a server time: one issued less than a ttl ago and never released belongs to a lease that
  -- cannot have run out. One from the future (the clock was set back) says nothing about its age.
  if issued > released and issued + longest > now and issued <= now + 1000 then
    return refuse('young', '', issued + longest - now)
  end
  -- The same for one that vanished and was put back: it lives as long as that says, however often it vanishes.
  local alive = whole((get(KEYS[6]))) or 0
  if issued > released and alive > now and alive <= now + longest then return refuse('young', '', alive - now) end
  -- a hint that reaches further than a ttl was written under another clock
  if next_node ~= '' and next_node ~= node and now < till and till <= now + longest then
    return refuse('hint', next_node, till - now)
  end
end

local token = math.max(issued, now - 1, tonumber(ARGV[5])) + 1
if token > LAST_TOKEN then return redis.error_reply('ERR the next token has more than 15 digits: DEL the token key') end
redis.call('SET', KEYS[2], digits(token))
redis.call('SET', KEYS[1], digits(token) .. '|' .. owner, 'PX', ttl)
return grant('granted', token)
