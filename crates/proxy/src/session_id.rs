//! Makes connection ids of sessions. An id tells which worker has the session, and that it is Weir's: servers count
//! theirs from 1, and a client that takes a server's id (from information_schema.processlist) for one of Weir's must
//! not end somebody else's session.

/// Weir's ids are above this; a server that opened a thousand connections a second would come here in 34 days.
pub const BELOW_FIRST: u32 = 3_000_000_000;

/// The id of a worker's session with this number; numbers begin at 1, and go on there behind [`numbers_max`].
pub(crate) fn of(number: u32, worker: usize, workers: usize) -> u32 {
    BELOW_FIRST + number * workers as u32 + worker as u32
}

/// The greatest number that a session may have.
pub(crate) fn numbers_max(workers: usize) -> u32 {
    (u32::MAX - BELOW_FIRST) / workers.max(1) as u32 - 1
}

/// Which worker has the session, if it is one of Weir's.
pub(crate) fn worker_of(id: u32, workers: usize) -> Option<usize> {
    let place = id.checked_sub(BELOW_FIRST).filter(|place| *place > 0)?;
    Some(place as usize % workers.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_tells_its_worker_and_is_no_servers() {
        for workers in [1, 2, 7, 255] {
            for worker in [0, workers - 1] {
                for number in [1, 2, numbers_max(workers)] {
                    let id = of(number, worker, workers);
                    assert_eq!(worker_of(id, workers), Some(worker), "{id}");
                }
            }
            assert!(numbers_max(workers) > 1_000_000);
            assert_eq!(worker_of(42, workers), None);
        }
        assert_eq!(of(1, 0, 1), 3_000_000_001);
    }
}
