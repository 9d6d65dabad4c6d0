-- What is known of a job's past; changes nothing.
--
-- KEYS: 1 tick  2 history  3 ages
-- -> {ticks later than this are counted, ticks up to this are counted (both ms), ran, skipped, missed,
--     how many open runs, per open run: run, mark; then the records (JSON), newest first}
-- Bounded, whatever people wrote: ten thousand records, 64 KiB each, 16 MiB together.

local MOST_ENTRIES = 10000
local LONGEST_ENTRY = 65536 -- bytes
local LONGEST_PAST = 16 * 1024 * 1024 -- bytes

local out = {}
for i, field in ipairs({'since', 'last', 'ran', 'skipped', 'missed'}) do
  out[i] = digits(whole((hget(KEYS[1], field))) or 0)
end
out[6] = '0'
append_open_runs(out, KEYS[1])
out[6] = digits((#out - 6) / 2)

local entries = redis.pcall('ZREVRANGE', KEYS[3], 0, MOST_ENTRIES - 1)
if entries.err then return out end
local room = LONGEST_PAST
for _, entry in ipairs(entries) do
  local bytes = redis.pcall('HSTRLEN', KEYS[2], entry)
  if type(bytes) == 'number' and bytes > 0 and bytes <= LONGEST_ENTRY then
    room = room - bytes
    if room < 0 then break end
    out[#out + 1] = redis.call('HGET', KEYS[2], entry)
  end
end
return out
