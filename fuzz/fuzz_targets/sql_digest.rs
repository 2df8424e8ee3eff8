#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_sql::fuzzing::fuzz_digest(data));
