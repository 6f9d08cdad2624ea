-- For tests: the last argument is the time, the one before it how many of its units are a second. Keys live long enough
-- for time to stand still while a test goes on.
local now = tonumber(ARGV[#ARGV])
local SINCE, SECOND, MS = 0, tonumber(ARGV[#ARGV - 1]), tonumber(ARGV[#ARGV - 1]) / 1e9
