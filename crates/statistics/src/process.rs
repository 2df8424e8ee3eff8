//! Reads what the system reports about this process (proc(5)).

use std::fs;

/// Memory of this process; zero where the system does not tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// In RAM.
    pub resident_bytes: u64,
    /// Addresses that are taken.
    pub virtual_bytes: u64,
    /// Data and stack.
    pub data_bytes: u64,
}

/// CPU time that this process has taken, in clock ticks; zero where the system does not tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuTime {
    /// In its own code.
    pub user_ticks: u64,
    /// In the kernel.
    pub system_ticks: u64,
}

/// The memory of now.
pub fn memory() -> Memory {
    let page = rustix::param::page_size() as u64;
    fs::read_to_string("/proc/self/statm").ok().and_then(|text| parse_memory(&text, page)).unwrap_or_default()
}

/// The time up to now.
pub fn cpu_time() -> CpuTime {
    fs::read_to_string("/proc/self/stat").ok().and_then(|text| parse_cpu_time(&text)).unwrap_or_default()
}

fn parse_memory(statm: &str, page_bytes: u64) -> Option<Memory> {
    let mut pages = statm.split_ascii_whitespace().map(|field| field.parse::<u64>().ok());
    let (size, resident) = (pages.next()??, pages.next()??);
    let data = pages.nth(3)??;
    let bytes = |pages: u64| pages.saturating_mul(page_bytes);
    Some(Memory { resident_bytes: bytes(resident), virtual_bytes: bytes(size), data_bytes: bytes(data) })
}

fn parse_cpu_time(stat: &str) -> Option<CpuTime> {
    // The second field is the program's name in brackets, and may have anything in it.
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace();
    let user_ticks = fields.nth(11)?.parse().ok()?;
    let system_ticks = fields.next()?.parse().ok()?;
    Some(CpuTime { user_ticks, system_ticks })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_whatever_the_program_is_called() {
        let stat = "12 (a) b (c) S 1 2 3 4 5 6 7 8 9 10 111 222 0 0 20 0 4";
        assert_eq!(parse_cpu_time(stat), Some(CpuTime { user_ticks: 111, system_ticks: 222 }));
        assert_eq!(parse_cpu_time("12 (weir) S 1"), None);
        let memory = parse_memory("100 20 3 4 0 50 0\n", 4096);
        let expected = Memory { resident_bytes: 81_920, virtual_bytes: 409_600, data_bytes: 204_800 };
        assert_eq!(memory, Some(expected));
        assert_eq!(parse_memory("x", 4096), None);
    }

    #[test]
    fn this_process_has_some() {
        let memory = memory();
        assert!(memory.resident_bytes > 1 << 16 && memory.virtual_bytes >= memory.resident_bytes);
    }
}
