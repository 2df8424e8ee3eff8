//! A process that is killed in the middle of SAVE ... TO DISK: what was saved before is there, whole.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use weir_config::{TableRow, TableRows};
use weir_store::{Layer, Module, Store};

/// Where the process that is to be killed saves to.
const DIRECTORY: &str = "WEIR_STORE_CRASH_DIRECTORY";
const USERS: usize = 2000;
const KILLS: usize = 12;

/// Saves one generation of users after the other, and tells when each is saved.
#[test]
fn a_process_that_saves_until_it_is_killed() {
    let Some(directory) = std::env::var_os(DIRECTORY) else { return };
    let mut store = Store::open(Path::new(&directory)).unwrap().store;
    let first = saved_generation(&mut store).map_or(0, |generation| generation + 1);
    for generation in first.. {
        let row = |user: usize| -> TableRow {
            [
                ("username".into(), format!("user{user}").into()),
                ("comment".into(), generation.to_string().into()),
            ]
            .into()
        };
        let mut rows = TableRows::new();
        rows.set("mysql_users", (0..USERS).map(row).collect());
        store.replace(&[Module::MysqlUsers], &rows).unwrap();
        store.copy(Module::MysqlUsers, Layer::Memory, Layer::Disk).unwrap();
        println!("saved {generation}");
    }
}

#[test]
fn a_kill_in_the_middle_of_a_save_loses_nothing_that_was_saved() {
    let directory = tempfile::tempdir().unwrap();
    let mut last = 0;
    for kill in 0..KILLS {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "a_process_that_saves_until_it_is_killed", "--nocapture"])
            .env(DIRECTORY, directory.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        let saved = lines.filter_map(|line| line.split_once("saved ").map(|(_, number)| number.to_owned()));
        // From then on it is in the middle of the next one: each time somewhere else.
        let told: u64 = saved.take(1 + kill % 3).last().unwrap().parse().unwrap();
        (0..kill * 20_000).for_each(|_| std::hint::spin_loop());
        child.kill().unwrap();
        child.wait().unwrap();
        let mut store = Store::open(directory.path()).unwrap().store;
        let found = saved_generation(&mut store).unwrap();
        assert!(found >= told && told >= last, "{found} is there, {told} was saved, {last} before");
        last = found;
    }
}

/// The generation on disk, of which all users are.
fn saved_generation(store: &mut Store) -> Option<u64> {
    let rows = store.rows(Layer::Disk).expect("disk can be read");
    let comments = rows.of("mysql_users").iter().map(|row| row.get("comment").cloned());
    let mut generations: Vec<_> = comments.collect();
    assert!(generations.is_empty() || generations.len() == USERS, "{} users", generations.len());
    generations.dedup();
    assert!(generations.len() <= 1, "{generations:?}");
    match generations.pop()?? {
        weir_config::Cell::Text(text) => text.parse().ok(),
        other => panic!("{other:?}"),
    }
}
