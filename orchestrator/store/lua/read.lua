-- Everything that `status` shows of many leases of one bucket; changes nothing.
--
-- KEYS: per lease: lease, token, released, state, last
-- -> per lease: value or '' or '?' (no text of a lease's length), ms left (-2 absent, -1 no expiry), token,
--    token that was last released cleanly, state (JSON), record of the last run (JSON); '' where absent

local LONGEST_JSON = 65536 -- bytes; what is longer was not written by us

local function json(reply)
  if type(reply) == 'string' and #reply <= LONGEST_JSON then return reply end
  return ''
end

local out = {}
for i = 1, #KEYS, 5 do
  local value, broken = get(KEYS[i])
  local n = #out
  out[n + 1] = value or (broken and '?' or '')
  out[n + 2] = (value or broken) and redis.call('PTTL', KEYS[i]) or -2
  out[n + 3] = digits(whole((get(KEYS[i + 1]))) or 0)
  out[n + 4] = digits((released_parts((get(KEYS[i + 2])))))
  out[n + 5] = json(redis.pcall('GET', KEYS[i + 3]))
  out[n + 6] = json(redis.pcall('HGET', KEYS[i + 4], 'record'))
end
return out
