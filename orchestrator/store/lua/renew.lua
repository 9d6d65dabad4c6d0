-- Renew many leases of one bucket in one call.
--
-- KEYS: lease_1, lease_2 ...   (their token, released and alive keys have the same stem, so the same slot; they
--       are touched only where a lease vanished, and naming them in each call doubled the client's work)
-- ARGV: per lease "ttl ms|not_after ms|value"; value is "token|node|incarnation", not_after the server time
--       past which a vanished lease is not put back: this call is late, or the server's clock jumped
-- -> {server ms, then only for the leases that were not plainly renewed: index, what, detail}
--    back      it had vanished and stands again, with the same token
--    taken     somebody else's value stands there; detail: the value
--    newer     it is gone and a newer token was issued; detail: that token
--    released  it is gone and was released
--    late      it is gone and not_after is past; nothing was done
--    refused   it is gone and the server would not take it back (out of memory); detail: what it said
--
-- PEXPIRE and not SET: it works when the server is out of memory. A lease that cannot be put back
-- must not abort the renewal of those after it, hence pcall.

local function put_back(lease, value, ttl, not_after, now)
  local token = lease_parts(value)
  local stem = string.sub(lease, 1, -#'lease' - 1)
  local issued = whole((get(stem .. 'token'))) or 0
  if issued > token then return 'newer', digits(issued) end
  local released = released_parts((get(stem .. 'released')))
  if released >= token then return 'released', '' end
  if now > not_after then return 'late', '' end
  local said = redis.pcall('SET', stem .. 'token', digits(token))
  -- Whoever deletes it once may do so again, until no standby remembers it: this trace has no expiry, so that
  -- an eviction which takes leases leaves it.
  if not said.err then said = redis.pcall('SET', stem .. 'alive', digits(now + ttl)) end
  if not said.err then said = redis.pcall('SET', lease, value, 'PX', ttl) end
  if said.err then return 'refused', said.err end
  return 'back', ''
end

local now = server_ms()
local out = {digits(now)}
for i = 1, #KEYS do
  local ttl, not_after, value = string.match(ARGV[i], '^(%d+)|(-?%d+)|(.*)$')
  local stored = redis.pcall('GET', KEYS[i])
  if stored == value then
    redis.call('PEXPIRE', KEYS[i], ttl)
  else
    local what, detail = 'taken', (text(stored))
    if not lease_parts(detail) then
      what, detail = put_back(KEYS[i], value, ttl, tonumber(not_after), now)
    end
    local n = #out
    out[n + 1], out[n + 2], out[n + 3] = i, what, detail
  end
end
return out
