#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_topology::fuzzing::fuzz_gtids(data));
