#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_routing::fuzzing::fuzz_pattern(data));
