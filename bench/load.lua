-- What wrk sends: wrk -s load.lua URL -- PATH RUN fresh|fixed [PAUSE]
-- One POST after the other, each with an Idempotency-Key of its own, or all with the same. Plain and
-- guarded locations get exactly the same requests. With PAUSE, each connection waits for so many
-- milliseconds on the average before a request, by chance, as callers do that know nothing of each
-- other. At the end one line of JSON is printed.
local body = '{"amount":"12.50","currency":"EUR","reference":"order-4711"}'
local threads = 0

function setup(thread)
   thread:set("number", threads)
   threads = threads + 1
end

function init(arguments)
   local path, run, kind, pause = arguments[1], arguments[2], arguments[3], tonumber(arguments[4])
   fresh = kind == "fresh"
   serial = 0
   head = "POST " .. path .. " HTTP/1.1\r\nHost: bench.test\r\nContent-Type: application/json\r\n" ..
          "Content-Length: " .. #body .. "\r\nIdempotency-Key: " .. run .. "-" .. number .. "-"
   tail = "\r\n\r\n" .. body
   if pause then
      math.randomseed(number + 1)
      delay = function() return math.floor(0.5 - pause * math.log(1 - math.random())) end
   end
end

function request()
   if fresh then
      serial = serial + 1
   end
   return head .. string.format("%012d", serial) .. tail
end

function done(summary, latency, requests)
   local errors = summary.errors
   print(string.format('{"requests": %d, "seconds": %.6f, "p50_ms": %.4f, "p99_ms": %.4f, ' ..
                       '"p999_ms": %.4f, "wrong_status": %d, "broken": %d}',
                       summary.requests, summary.duration / 1e6, latency:percentile(50) / 1e3,
                       latency:percentile(99) / 1e3, latency:percentile(99.9) / 1e3, errors.status,
                       errors.connect + errors.read + errors.write + errors.timeout))
end
