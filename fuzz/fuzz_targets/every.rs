//! All targets in one program, which is compiled and linked once: `WEIR_FUZZ` names the one to run. For `scripts/fuzz`, which
//! shows in a moment that they run; `make fuzz` has a program for each.

#![no_main]

use std::sync::LazyLock;

static CHECK: LazyLock<fn(&[u8])> = LazyLock::new(|| {
    let target = std::env::var("WEIR_FUZZ").unwrap_or_default();
    match target.as_str() {
        "admin_command" => |data| {
            weir_admin::fuzzing::fuzz_command(data);
        },
        "admin_prepared" => |data| {
            weir_admin::fuzzing::fuzz_prepared(data);
        },
        "admin_session" => |data| {
            weir_admin::fuzzing::fuzz_session(data);
        },
        "admin_sql" => |data| {
            weir_admin::fuzzing::fuzz_sql(data);
        },
        "causal_token" => |data| {
            weir_proxy::fuzzing::fuzz_causal_token(data);
        },
        "cnf" => |data| {
            weir_config::fuzzing::fuzz_cnf(data);
        },
        "command" => |data| {
            weir_protocol::fuzzing::fuzz_command(data);
        },
        "config" => |data| {
            weir_config::fuzzing::fuzz_config(data);
        },
        "detour" => |data| {
            weir_proxy::fuzzing::fuzz_core_aside(data);
        },
        "greeting" => |data| {
            weir_protocol::fuzzing::fuzz_greeting(data);
        },
        "gtids" => |data| {
            weir_topology::fuzzing::fuzz_gtids(data);
        },
        "handshake_response" => |data| {
            weir_protocol::fuzzing::fuzz_handshake_response(data);
        },
        "ok_packet" => |data| {
            weir_protocol::fuzzing::fuzz_ok_packet(data);
        },
        "positions" => |data| {
            weir_topology::fuzzing::fuzz_positions(data);
        },
        "proxy_header" => |data| {
            weir_protocol::fuzzing::fuzz_proxy_header(data);
        },
        "reply_reader" => |data| {
            weir_protocol::fuzzing::fuzz_reply_reader(data);
        },
        "rule_hints" => |data| {
            weir_routing::fuzzing::fuzz_hints(data);
        },
        "rule_pattern" => |data| {
            weir_routing::fuzzing::fuzz_pattern(data);
        },
        "server_address" => |data| {
            weir_discovery::fuzzing::fuzz_address(data);
        },
        "server_facts" => |data| {
            weir_discovery::fuzzing::fuzz_facts(data);
        },
        "server_states" => |data| {
            weir_topology::fuzzing::fuzz_states(data);
            weir_eviction::fuzzing::fuzz_membership(data);
        },
        "sql_digest" => |data| {
            weir_sql::fuzzing::fuzz_digest(data);
        },
        "sql_scan" => |data| {
            weir_sql::fuzzing::fuzz_scan(data);
        },
        "worker_client" => |data| {
            weir_proxy::fuzzing::fuzz_core_client(data);
        },
        "worker_server" => |data| {
            weir_proxy::fuzzing::fuzz_core_server(data);
        },
        other => panic!("WEIR_FUZZ={other}: no such target"),
    }
});

libfuzzer_sys::fuzz_target!(|data: &[u8]| CHECK(data));
