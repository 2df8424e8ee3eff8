//! Runs the fuzz targets' functions over `fuzz/corpus/`, beginnings of its files and seeded mutations of them.

use weir_admin::fuzzing::{fuzz_command, fuzz_prepared, fuzz_session, fuzz_sql};
use weir_seeds::Corpus;

/// Mutations for each target.
const MUTATIONS: usize = 512;
/// Bytes that begin or end something.
const TELLING: &[u8] = b"'\"`\\/*-# \n\0;@.,()$=09AZaz";

#[test]
fn every_beginning_of_commands_and_prepared_statements() {
    Corpus::of("admin_command", TELLING).beginnings(fuzz_command);
    Corpus::of("admin_prepared", TELLING).beginnings(fuzz_prepared);
}

#[test]
fn beginnings_of_sql() {
    Corpus::of("admin_sql", TELLING).beginnings_by(|_| 7, fuzz_sql);
}

/// Each has a whole admin interface, so that not every beginning is tried.
#[test]
fn sessions_that_end_anywhere() {
    Corpus::of("admin_session", TELLING).beginnings_by(|len| len / 8 + 1, fuzz_session);
}

#[test]
fn mutations_of_commands() {
    Corpus::of("admin_command", TELLING).mutations(MUTATIONS, fuzz_command);
}

#[test]
fn mutations_of_prepared_statements() {
    Corpus::of("admin_prepared", TELLING).mutations(MUTATIONS, fuzz_prepared);
}

#[test]
fn mutations_of_sql() {
    Corpus::of("admin_sql", TELLING).mutations(MUTATIONS, fuzz_sql);
}
