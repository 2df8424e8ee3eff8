#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_discovery::fuzzing::fuzz_address(data));
