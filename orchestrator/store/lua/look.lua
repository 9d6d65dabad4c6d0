-- Look at many leases of one bucket that are not ours; changes nothing.
--
-- KEYS: lease_1, lease_2 ...
-- -> {value or '' or '?' (there is something, but no text of a lease's length), ms left (-2 absent, -1 no expiry), ...}

local out = {}
for i = 1, #KEYS do
  local value, broken = get(KEYS[i])
  out[2 * i - 1] = value or (broken and '?' or '')
  out[2 * i] = (value or broken) and redis.call('PTTL', KEYS[i]) or -2
end
return out
