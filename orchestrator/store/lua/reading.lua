-- Put before every other script: how the store reads what people may have broken.
-- Whatever is of the wrong type, too long or malformed counts as absent and never aborts a call.
-- Numbers travel as digits (Lua would print 1.7e12 as 1.7e+12); 15 digits are exact in a double.

local LONGEST_TEXT = 4096 -- bytes; nothing of ours that a script compares is longer (intents.py keeps to it)
local LAST_TOKEN = 999999999999999

local function digits(number) return string.format('%.0f', number) end

local function server_ms()
  local t = redis.call('TIME')
  return t[1] * 1000 + math.floor(t[2] / 1000)
end

-- the text, or nil and whether something else stands there
local function text(reply)
  if type(reply) ~= 'string' then return nil, type(reply) == 'table' end
  if #reply > LONGEST_TEXT then return nil, true end
  return reply, false
end

local function get(key) return text(redis.pcall('GET', key)) end
local function hget(key, field) return text(redis.pcall('HGET', key, field)) end

local function whole(said)
  if said and #said <= 15 and string.find(said, '^%d+$') then return tonumber(said) end
  return nil
end

-- An instant that was: the newest settled tick, the newest obeyed order. One that lies more than a day ahead was written
-- by people, or under a clock that was wrong: it counts as absent, so that it cannot silence a job.
local function past_ms(said, now)
  local ms = whole(said)
  if ms and ms > now + 86400000 then return nil end
  return ms
end

-- What ran, was skipped or missed is counted from here: all of it is forgotten, or begins.
local function begin_counts(ticks, since)
  redis.call('HSET', ticks, 'since', digits(since), 'ran', '0', 'skipped', '0', 'missed', '0')
end

-- "token|node|incarnation" -> token, "node|incarnation"; nil if it is no lease value
local function lease_parts(said)
  local token, owner = string.match(said or '', '^(%d+)|(.+|[^|]+)$')
  if whole(token) then return tonumber(token), owner end
  return nil, nil
end

-- what was last released cleanly, "token|next node|until ms|epoch" -> token (0: none), next node, until, epoch
local function released_parts(said)
  local token, node, till, epoch = string.match(said or '', '^(%d+)|([^|]*)|(%d+)|(.*)$')
  if whole(token) and whole(till) then return tonumber(token), node, tonumber(till), epoch end
  return 0, '', 0, ''
end

-- make room for a value of another type than the one that somebody left there
local function heal(key, kind)
  local found = redis.call('TYPE', key).ok
  if found ~= kind and found ~= 'none' then redis.call('DEL', key) end
end

-- Who this process is: another one after a restart or a fail-over, whatever its data say.
local function server_run_id()
  return string.match(redis.call('INFO', 'server'), 'run_id:(%w+)')
end

-- what a cron keeps of its open runs, appended to `out` as run, mark; nothing where people wrote thousands of fields
local MOST_TICK_FIELDS = 2000

local function append_open_runs(out, ticks)
  local fields = redis.pcall('HLEN', ticks)
  if type(fields) ~= 'number' or fields > MOST_TICK_FIELDS then return end
  local known = redis.call('HGETALL', ticks)
  for i = 1, #known, 2 do
    local run, mark = string.match(known[i], '^run:(.+)$'), text(known[i + 1])
    if run and mark then out[#out + 1], out[#out + 2] = run, mark end
  end
end
