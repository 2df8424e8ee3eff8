-- sysbench's oltp_read_write whose errors are told one by one: when, where in a transaction, which.
--
-- A line per error on stderr: WEIR-ERROR MONOTONIC_NS WHERE ERRNO SQLSTATE MESSAGE, where WHERE is
-- "outside", "inside" or "commit". Every error repeats the transaction; a lost connection is made anew first.

require("oltp_read_write")

sysbench.cmdline.options.own_keys = { "Each thread works with rows of its own", false }

-- The ids, which oltp_common.lua draws from all rows of a table. Ranges of range_size rows begin at them.
local draw = sysbench.rand.default
function sysbench.rand.default(first, last)
   if not sysbench.opt.own_keys or first ~= 1 or last ~= sysbench.opt.table_size then
      return draw(first, last)
   end
   local rows = math.floor(last / sysbench.opt.threads)
   local before = (sysbench.tid % sysbench.opt.threads) * rows
   return sysbench.rand.uniform(before + 1, before + rows - sysbench.opt.range_size)
end

local ffi = require("ffi")
ffi.cdef[[
struct weir_timespec { long seconds; long nanoseconds; };
int clock_gettime(int clock, struct weir_timespec *time);
int usleep(unsigned int us);
]]
local CLOCK_MONOTONIC = 1
-- Transaction resolution unknown: the connection ends with it.
local UNKNOWN = "08007"
local LOST = { [2006] = true, [2013] = true, [2055] = true, [2027] = true, [1053] = true, [1927] = true }

local where = "outside"
local has_failed = false
local begin_transaction, commit_transaction = begin, commit

function begin()
   where = "outside"
   if has_failed then
      -- What an application does with a transaction in which a statement has failed.
      has_failed = false
      con:query("ROLLBACK")
   end
   begin_transaction()
   where = "inside"
end

function commit()
   where = "commit"
   commit_transaction()
   where = "outside"
end

local function tell(errno, state, message)
   local now = ffi.new("struct weir_timespec")
   ffi.C.clock_gettime(CLOCK_MONOTONIC, now)
   io.stderr:write(string.format("WEIR-ERROR %d%09d %s %d %s %s\n", tonumber(now.seconds),
      tonumber(now.nanoseconds), where, errno, state, (message:gsub("%s+", " "))))
end

-- sysbench's own reconnect() crashes with MariaDB's client library, so there is a new connection.
local function connect_again()
   close_statements()
   con:disconnect()
   local connected
   repeat
      connected, con = pcall(drv.connect, drv)
      if not connected then
         ffi.C.usleep(20000)
      end
   until connected
   prepare_statements()
end

-- sysbench calls this for every error that its options do not ignore; true repeats the event.
function sysbench.hooks.sql_error_ignorable(e)
   tell(e.sql_errno, e.sql_state, e.sql_errmsg)
   has_failed = where ~= "outside"
   where = "outside"
   if LOST[e.sql_errno] or e.sql_state == UNKNOWN then
      has_failed = false
      connect_again()
   end
   return true
end

-- Done above.
function sysbench.hooks.before_restart_event(e)
end
