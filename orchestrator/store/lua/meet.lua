-- Who is this server? The only writer of the epoch: it is written where it is missing (data were lost)
-- or another server's (restart, fail-over).
--
-- KEYS: 1 epoch
-- ARGV: 1 a random word
-- -> {epoch, 1 if this call wrote it else 0, server ms}          epoch: "born ms|random|run_id"

local now = digits(server_ms())
local run_id = server_run_id()
local epoch = get(KEYS[1])
if epoch and string.match(epoch, '^%d+|[^|]+|(%w+)$') == run_id then return {epoch, 0, now} end
epoch = now .. '|' .. ARGV[1] .. '|' .. run_id
redis.call('SET', KEYS[1], epoch)
return {epoch, 1, now}
