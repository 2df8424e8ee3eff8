//! Clients go on with their transactions while one writer after the other is killed.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use weir_tests::{CaseResult, Session, ensure, eventually};

use super::{DEADLOCK, PATIENCE, Place, REPLAYED, error_of};
use crate::switchover;

const CLIENTS: usize = 8;
const KILLS: usize = 3;

/// Who numbers the clients' rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Numbers {
    /// AUTO_INCREMENT: at the next writer nobody is to get a number before the transaction runs again that has had it.
    Servers,
    Clients,
}

/// What is done to the server at an address.
type Act<'a> = &'a dyn Fn(&str) -> CaseResult;

/// The COMMITs that a client was told of, how many nobody knows of, and why others were rolled back.
type Told = (Vec<String>, usize, Vec<String>);

/// Kills the writer and starts it again, several times: what is acknowledged is there, and nothing else, and once.
pub(crate) fn outlived(
    place: &Place<'_>,
    is_marked: bool,
    numbers: Numbers,
    (kill, start): (Act<'_>, Act<'_>),
) -> CaseResult {
    let stop = AtomicBool::new(false);
    let (kept, unknown, told) = thread::scope(|scope| -> Result<Told, Box<dyn std::error::Error>> {
        let mut clients = Vec::new();
        for number in 0..CLIENTS {
            let stop = &stop;
            clients.push(scope.spawn(move || client(place, number, numbers, stop)));
        }
        let made = (|| -> CaseResult {
            for _ in 0..KILLS {
                let writer = switchover::writer(&place.weir)?;
                thread::sleep(Duration::from_secs(1));
                kill(&writer)?;
                eventually("another one writes", PATIENCE, || {
                    Ok(switchover::writer(&place.weir).is_ok_and(|next| !next.is_empty() && next != writer))
                })?;
                start(&writer)?;
                thread::sleep(Duration::from_secs(1));
            }
            Ok(())
        })();
        stop.store(true, Ordering::Relaxed);
        let (mut kept, mut unknown, mut told) = (Vec::new(), 0, Vec::new());
        for client in clients {
            let (words, lost, rolled_back) = client.join().map_err(|_| "a client has panicked")??;
            kept.extend(words);
            unknown += lost;
            told.extend(rolled_back);
        }
        made.map(|()| (kept, unknown, told))
    })?;
    let there = place.rows("SELECT word FROM child")?;
    let missing: Vec<&String> = kept.iter().filter(|word| !there.contains(word)).collect();
    ensure!(missing.is_empty(), "acknowledged, and not there: {missing:?}");
    ensure!(unknown + told.len() <= CLIENTS * KILLS, "{unknown} unknown, rolled back: {told:?}");
    ensure!(there.len() <= kept.len() + unknown, "{} rows of {}", there.len(), kept.len());
    ensure!(!is_marked || unknown == 0, "of {unknown} COMMITs nobody knows");
    ensure!(!is_marked || place.count("Weir_outcome_markers_refused")? == 0, "a row could not be written");
    ensure!(told.is_empty(), "rolled back: {told:?}");
    ensure!(place.count(REPLAYED)? > 0, "none was run again; rolled back: {told:?}");
    Ok(())
}

fn client(place: &Place<'_>, number: usize, numbers: Numbers, stop: &AtomicBool) -> Result<Told, String> {
    let open = || place.session().map_err(|error| error.to_string());
    let mut session = open()?;
    let (mut kept, mut unknown, mut told) = (Vec::new(), 0, Vec::new());
    let mut round = 0;
    while !stop.load(Ordering::Relaxed) {
        round += 1;
        let word = format!("{number}-{round}");
        let own_id = (numbers == Numbers::Clients).then_some((number + 1) * 1_000_000 + round);
        match one_transaction(&mut session, &word, own_id) {
            Ok(()) => kept.push(word),
            // Only a COMMIT that is on its way when its server dies.
            Err(Failed::Unknown) => {
                unknown += 1;
                session = open()?;
            }
            Err(Failed::RolledBack(why)) => told.push(why),
            Err(Failed::Else(why)) => return Err(format!("{word}: {why}")),
        }
    }
    Ok((kept, unknown, told))
}

enum Failed {
    Unknown,
    /// The next writer has given another answer, as of a number that another row had there.
    RolledBack(String),
    Else(String),
}

/// Three statements that depend on each other, with a pause in which anything may happen.
fn one_transaction(client: &mut Session, word: &str, own_id: Option<usize>) -> Result<(), Failed> {
    let run = |client: &mut Session, sql: &str| -> Result<u64, Failed> {
        let answer = client.query(sql).map_err(|error| Failed::Else(error.to_string()))?;
        match error_of(&answer) {
            Some((_, sqlstate, _)) if sqlstate == "08007" => Err(Failed::Unknown),
            Some((DEADLOCK, _, why)) => Err(Failed::RolledBack(why)),
            Some(told) => Err(Failed::Else(format!("{sql}: {told:?}"))),
            None => answer.done().map(|done| done.insert_id).map_err(Failed::Else),
        }
    };
    run(client, "BEGIN")?;
    let id = match own_id {
        Some(id) => {
            run(client, &format!("INSERT INTO t (id, v) VALUES ({id}, 1)"))?;
            id as u64
        }
        None => run(client, "INSERT INTO t (v) VALUES (1)")?,
    };
    thread::sleep(Duration::from_millis(15));
    run(client, &format!("INSERT INTO child VALUES ({id}, '{word}')"))?;
    run(client, &format!("UPDATE t SET v = v + 1 WHERE id = {id}"))?;
    run(client, "COMMIT")?;
    Ok(())
}
