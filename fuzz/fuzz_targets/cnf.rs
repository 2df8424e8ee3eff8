#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_config::fuzzing::fuzz_cnf(data));
