#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    weir_topology::fuzzing::fuzz_states(data);
    weir_eviction::fuzzing::fuzz_membership(data);
});
