//! Checks what must hold for any bytes. The fuzz targets and the tests of their corpus call it.

use std::sync::Arc;

use weir_sql::Dialect;

use crate::{Facts, Hints, Options, QueryRule, Router, Rules, Who};

/// Reads `data` as a statement with hints. Panics if a promise does not hold.
pub fn fuzz_hints(data: &[u8]) {
    let hints = Hints::of(data, Dialect::default());
    let values = [hints.hostgroup, hints.timeout_ms, hints.retries, hints.delay_ms];
    assert!(values.iter().flatten().all(|value| i32::try_from(*value).is_ok()));
    if hints != Hints::default() {
        assert!(data.windows(2).any(|pair| pair == b"/*"), "hints without a comment");
    }
}

/// Reads `data` as modes (a byte), a pattern, a replacement and a statement with zero bytes between them: compiles,
/// decides twice. Panics if a promise does not hold.
pub fn fuzz_pattern(data: &[u8]) {
    let Some((modes, rest)) = data.split_first() else { return };
    let mut parts = rest.splitn(3, |byte| *byte == 0);
    let mut text = || std::str::from_utf8(parts.next().unwrap_or_default()).ok().map(str::to_owned);
    let (Some(pattern), Some(replacement)) = (text(), text()) else { return };
    let statement = parts.next().unwrap_or_default();
    let replaces = modes & 1 != 0;
    let row = QueryRule {
        active: true,
        match_digest: (modes & 2 != 0).then(|| pattern.clone()),
        match_pattern: (replaces || modes & 2 == 0).then_some(pattern),
        replace_pattern: replaces.then_some(replacement),
        negate_match_pattern: modes & 4 != 0,
        caseless: modes & 8 != 0,
        global: modes & 16 != 0,
        destination_hostgroup: Some(1),
        ..QueryRule::default()
    };
    match Rules::compile(&[row], &[], Options::default()) {
        Ok(rules) => check_decisions(&rules, statement),
        Err(faults) => assert!(faults.iter().all(|fault| !fault.reason.is_empty())),
    }
}

fn check_decisions(rules: &Arc<Rules>, statement: &[u8]) {
    let mut router = Router::new(rules);
    let scope = router.scope(&Who::default());
    let facts = Facts { statement, digest_text: statement, digest: 1, flag_in: 0 };
    let first = router.decide(scope, &facts, Hints::default(), &mut || 0);
    let second = router.decide(scope, &facts, Hints::default(), &mut || 0);
    assert_eq!(first, second, "a decision is not the same the second time");
    let hits: u64 = router.hits().map(|(_, hits)| hits).sum();
    assert_eq!(hits, if first.decision.hostgroup.is_some() { 2 } else { 0 });
    assert!(first.rewritten.is_none() || first.decision.hostgroup.is_some());
}
