#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_protocol::fuzzing::fuzz_proxy_header(data));
