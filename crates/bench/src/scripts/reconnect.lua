-- Connects, runs one point select, disconnects: what an application without a connection pool does.

sysbench.cmdline.options = {
   tables = {"Number of tables", 1},
   table_size = {"Number of rows per table", 10000},
}

function thread_init()
   drv = sysbench.sql.driver()
end

function event()
   local con = drv:connect()
   local table_number = sysbench.rand.uniform(1, sysbench.opt.tables)
   local id = sysbench.rand.uniform(1, sysbench.opt.table_size)
   con:query(string.format("SELECT c FROM sbtest%d WHERE id=%d", table_number, id))
   con:disconnect()
end
