//! Applies the rules for one worker: decides, remembers, counts.

use std::collections::HashMap;
use std::sync::Arc;

use crate::cache::{Cache, Key};
use crate::decision::Decision;
use crate::hints::{HintOrder, Hints};
use crate::pattern::{GaveUp, Pattern};
use crate::prefilter::Possible;
use crate::rules::{Rule, Rules};
use crate::transactions::TransactionSettings;

/// Different session facts that are told apart at a time; beyond that all are forgotten.
const SCOPES_MAX: usize = 16_384;
/// A statement must not become longer than this by replacements.
const REWRITTEN_BYTES_MAX: usize = 4 << 20;

/// The caller: the facts that hold for a session as long as it does not change its schema.
#[derive(Clone, Copy, Debug, Default)]
pub struct Who<'a> {
    /// The user.
    pub username: &'a [u8],
    /// The session's schema; empty if it has none.
    pub schemaname: &'a [u8],
    /// The client's address without a port.
    pub client_addr: &'a str,
    /// The listener's address without a port.
    pub proxy_addr: &'a str,
    /// The listener's port.
    pub proxy_port: u16,
}

/// The facts of a session as a number, see [`Router::scope`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scope {
    index: u32,
    generation: u32,
}

/// The facts of one statement.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// The statement's text.
    pub statement: &'a [u8],
    /// Its digest.
    pub digest_text: &'a [u8],
    /// The digest's hash.
    pub digest: u64,
    /// The chain to begin with: 0, or what the session's last statement has left.
    pub flag_in: u32,
}

/// A decision, and the statement's new text if a rule has replaced something.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct RoutingResult {
    /// The actions.
    pub decision: Decision,
    /// What is to be sent instead.
    pub rewritten: Option<Vec<u8>>,
    /// A rule has made it longer than 4 MiB: it must not be sent.
    pub is_too_long: bool,
}

/// One worker's router: the rules, its own patterns, the decisions it remembers, and its counts.
#[derive(Debug)]
pub struct Router {
    rules: Arc<Rules>,
    own: Vec<OwnPattern>,
    hits: Vec<u64>,
    gave_up: u64,
    cache: Cache,
    scopes: HashMap<Box<[u8]>, u32>,
    scope_facts: Vec<ScopeFacts>,
    generation: u32,
    /// Reused: the key of a scope, the rules that match, and those that may.
    key: Vec<u8>,
    matched: Vec<u16>,
    possible: Possible,
}

/// The patterns of a rule, for the digest and for the statement, with working memory of this worker's own, so that workers
/// never wait for each other. One is cloned when it is tried for the first time: of many rules most never are.
#[derive(Clone, Debug, Default)]
struct OwnPattern {
    digest: Option<Pattern>,
    text: Option<Pattern>,
}

#[derive(Debug)]
struct ScopeFacts {
    /// Positions of the rules that the session's facts do not exclude.
    candidates: Box<[u16]>,
    /// Flags and destinations; the first of a flag counts.
    fast_routes: Box<[(u32, u32)]>,
}

/// A walk through the rules.
struct Walk<'a> {
    facts: &'a Facts<'a>,
    decision: Decision,
    flag: u32,
    rewritten: Option<Vec<u8>>,
    is_too_long: bool,
    /// The outcome is not the digest's alone.
    saw_text: bool,
    is_applied: bool,
}

impl Router {
    /// A worker's router. Its counters begin at 0.
    pub fn new(rules: &Arc<Rules>) -> Self {
        Self {
            rules: rules.clone(),
            own: vec![OwnPattern::default(); rules.rules.len()],
            hits: vec![0; rules.rules.len()],
            gave_up: 0,
            cache: Cache::default(),
            scopes: HashMap::new(),
            scope_facts: Vec::new(),
            generation: 0,
            key: Vec::new(),
            matched: Vec::new(),
            possible: Possible::default(),
        }
    }

    /// The rules it was made from.
    pub fn rules(&self) -> &Arc<Rules> {
        &self.rules
    }

    /// How often each active rule has matched, with its rule_id.
    pub fn hits(&self) -> impl Iterator<Item = (u32, u64)> {
        self.rules.rule_ids().zip(self.hits.iter().copied())
    }

    /// How often a pattern was given up because of its limits.
    pub fn patterns_given_up(&self) -> u64 {
        self.gave_up
    }

    /// Decisions remembered now.
    pub fn decisions_remembered(&self) -> usize {
        self.cache.len()
    }

    /// The error_msg of the rule at this position.
    pub fn error_message(&self, position: u16) -> &str {
        let rule = self.rules.rules.get(usize::from(position));
        rule.and_then(|rule| rule.row.error_msg.as_deref()).unwrap_or_default()
    }

    /// The OK_msg of the rule at this position.
    pub fn ok_message(&self, position: u16) -> &str {
        let rule = self.rules.rules.get(usize::from(position));
        rule.and_then(|rule| rule.row.ok_msg.as_deref()).unwrap_or_default()
    }

    /// Whether a scope still means something here.
    pub fn is_current(&self, scope: Scope) -> bool {
        scope.generation == self.generation
    }

    /// What the rules make of a session's facts; to be asked anew when the schema changes.
    pub fn scope(&mut self, who: &Who<'_>) -> Scope {
        self.put_key(who);
        if let Some(index) = self.scopes.get(self.key.as_slice()) {
            return Scope { index: *index, generation: self.generation };
        }
        if self.scope_facts.len() >= SCOPES_MAX {
            self.scopes.clear();
            self.scope_facts.clear();
            self.cache.clear();
            self.generation = self.generation.wrapping_add(1);
        }
        let rules = (0..=u16::MAX).zip(&self.rules.rules);
        let candidates = rules.filter(|(_, rule)| rule.may_match(who)).map(|(at, _)| at);
        let facts = ScopeFacts {
            candidates: candidates.collect(),
            fast_routes: self.rules.fast_routes(who.username, who.schemaname),
        };
        let index = self.scope_facts.len() as u32;
        self.scope_facts.push(facts);
        self.scopes.insert(self.key.as_slice().into(), index);
        Scope { index, generation: self.generation }
    }

    /// The facts that some rule asks for, in a form that no two different ones share.
    fn put_key(&mut self, who: &Who<'_>) {
        let used = self.rules.facts;
        let port = who.proxy_port.to_le_bytes();
        self.key.clear();
        for (is_used, fact) in [
            (used.username, who.username),
            (used.schemaname, who.schemaname),
            (used.client_addr, who.client_addr.as_bytes()),
            (used.proxy, who.proxy_addr.as_bytes()),
            (used.proxy, &port),
        ] {
            if is_used {
                self.key.extend_from_slice(&(fact.len() as u64).to_le_bytes());
                self.key.extend_from_slice(fact);
            }
        }
    }

    /// Decides. `draw` gives a random number for each rule with weighted flagOUTs.
    pub fn decide(
        &mut self,
        scope: Scope,
        facts: &Facts<'_>,
        hints: Hints,
        draw: &mut dyn FnMut() -> u64,
    ) -> RoutingResult {
        let key = Key { scope: scope.index, flag_in: facts.flag_in, digest: facts.digest };
        let mut result = RoutingResult::default();
        if let Some(known) = self.cache.find(key, facts.digest_text) {
            for position in &known.matched {
                self.hits[usize::from(*position)] += 1;
            }
            result.decision = known.decision;
        } else {
            let Some(walk) = self.walk(scope, facts, draw) else { return result };
            for position in &self.matched {
                self.hits[usize::from(*position)] += 1;
            }
            if !walk.saw_text {
                self.cache.remember(key, facts.digest_text, walk.decision, &self.matched);
            }
            result = RoutingResult {
                decision: walk.decision,
                rewritten: walk.rewritten,
                is_too_long: walk.is_too_long,
            };
        }
        let hinted = hints.decision();
        result.decision = match self.rules.options.hint_order {
            HintOrder::Before => result.decision.or(hinted),
            HintOrder::After | HintOrder::Both => hinted.or(result.decision),
        };
        result
    }

    /// Looks at the rules one after the other. `None` if the scope is not of this router.
    fn walk<'a>(
        &mut self,
        scope: Scope,
        facts: &'a Facts<'a>,
        draw: &mut dyn FnMut() -> u64,
    ) -> Option<Walk<'a>> {
        self.matched.clear();
        self.rules.needles.find(facts.digest_text, &mut self.possible);
        let session = self.scope_facts.get(scope.index as usize)?;
        let mut walk = Walk {
            facts,
            decision: Decision::default(),
            flag: facts.flag_in,
            rewritten: None,
            is_too_long: false,
            saw_text: false,
            is_applied: false,
        };
        let mut returns = self.rules.options.iterations;
        let mut at = 0;
        while let Some(position) = session.candidates.get(at) {
            at += 1;
            if !self.possible.contains(*position) {
                continue;
            }
            let index = usize::from(*position);
            let (Some(rule), Some(own)) = (self.rules.rules.get(index), self.own.get_mut(index)) else {
                continue;
            };
            match walk.matches(rule, own) {
                Ok(true) => {}
                Ok(false) => continue,
                Err(GaveUp) => {
                    self.gave_up += 1;
                    continue;
                }
            }
            self.matched.push(*position);
            let has_moved = walk.take(rule, own, *position, draw);
            if rule.row.apply {
                walk.is_applied = true;
                break;
            }
            if has_moved && returns > 0 {
                returns -= 1;
                at = 0;
            }
        }
        if !walk.is_applied {
            let mut routes = session.fast_routes.iter();
            let fast = routes.find(|(flag, _)| *flag == walk.flag).map(|(_, hostgroup)| *hostgroup);
            walk.decision.hostgroup = fast.or(walk.decision.hostgroup);
        }
        Some(walk)
    }
}

/// The clone of a pattern, made when it is asked for.
fn own_of<'o>(own: &'o mut Option<Pattern>, shared: &Option<Arc<Pattern>>) -> Option<&'o Pattern> {
    let shared = shared.as_deref()?;
    Some(own.get_or_insert_with(|| shared.clone()))
}

impl Rule {
    /// Whether a session's facts leave the rule possible.
    fn may_match(&self, who: &Who<'_>) -> bool {
        let row = &self.row;
        let equals =
            |wanted: &Option<String>, fact: &[u8]| wanted.as_ref().is_none_or(|text| text.as_bytes() == fact);
        let is_from = |wanted: &str| match wanted.strip_suffix('%') {
            Some(beginning) => who.client_addr.starts_with(beginning),
            None => who.client_addr == wanted,
        };
        equals(&row.username, who.username)
            && equals(&row.schemaname, who.schemaname)
            && row.client_addr.as_deref().is_none_or(is_from)
            && equals(&row.proxy_addr, who.proxy_addr.as_bytes())
            && row.proxy_port.is_none_or(|port| port == who.proxy_port)
    }
}

impl Walk<'_> {
    /// Whether a rule that the session's facts leave possible matches the statement. One whose pattern was given up
    /// does not match, negated or not.
    fn matches(&mut self, rule: &Rule, own: &mut OwnPattern) -> Result<bool, GaveUp> {
        let row = &rule.row;
        if row.flag_in != self.flag || row.digest.is_some_and(|digest| digest != self.facts.digest) {
            return Ok(false);
        }
        if let Some(pattern) = own_of(&mut own.digest, &rule.match_digest)
            && pattern.is_match(self.facts.digest_text)? == row.negate_match_pattern
        {
            return Ok(false);
        }
        if let Some(pattern) = own_of(&mut own.text, &rule.match_pattern) {
            self.saw_text = true;
            let statement = self.rewritten.as_deref().unwrap_or(self.facts.statement);
            return Ok(pattern.is_match(statement)? != row.negate_match_pattern);
        }
        Ok(true)
    }

    /// Adds the actions of a rule that matches. Whether it has led to another chain.
    fn take(
        &mut self,
        rule: &Rule,
        own: &mut OwnPattern,
        position: u16,
        draw: &mut dyn FnMut() -> u64,
    ) -> bool {
        let row = &rule.row;
        let actions = Decision {
            hostgroup: row.destination_hostgroup,
            is_hinted: false,
            timeout_ms: row.timeout_ms.filter(|timeout_ms| *timeout_ms > 0),
            retries: row.retries,
            delay_ms: row.delay_ms,
            next_flag_in: row.next_query_flag_in,
            multiplex: row.multiplex,
            consistency: row.consistency,
            hinted_consistency: None,
            transactions: row.transactions,
            hinted_transactions: TransactionSettings::default(),
            sees_own_writes: row.gtid_from_hostgroup.is_some(),
            log: row.log,
            error: row.error_msg.as_ref().map(|_| position),
            ok: row.ok_msg.as_ref().map(|_| position),
            rule_id: Some(row.rule_id),
        };
        self.decision = actions.or(self.decision);
        if let (Some(replacement), Some(pattern)) =
            (&rule.replacement, own_of(&mut own.text, &rule.match_pattern))
        {
            let statement = self.rewritten.as_deref().unwrap_or(self.facts.statement);
            match pattern.replace(statement, replacement, row.global) {
                Ok(Some(text)) if text.len() > REWRITTEN_BYTES_MAX => self.is_too_long = true,
                Ok(Some(text)) => self.rewritten = Some(text),
                Ok(None) | Err(GaveUp) => {}
            }
        }
        let flag = if rule.weight_sum > 0 {
            self.saw_text = true; // or chance, which is as good
            rule.weighted_flag(draw())
        } else {
            row.flag_out
        };
        self.flag = flag.unwrap_or(self.flag);
        flag.is_some()
    }
}
