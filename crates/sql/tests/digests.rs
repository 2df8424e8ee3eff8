//! Digests as ProxySQL makes them. `digests.jsonl` was recorded from ProxySQL 2.7.2, the server and its tokenizer by itself: statements, the options if
//! they were not the defaults, and the text and the hash that it made of them.

use serde_json::Value;
use weir_sql::{DigestOptions, Digester};

const RECORDED: &str = include_str!("digests.jsonl");

fn cases() -> impl Iterator<Item = Value> {
    RECORDED.lines().map(|line| serde_json::from_str(line).expect("a line of JSON"))
}

fn options(case: &Value) -> DigestOptions {
    let mut options = DigestOptions::default();
    let given = case.get("options").and_then(Value::as_object).into_iter().flatten();
    for (name, value) in given {
        let flag = || value.as_bool().expect("a flag");
        let number = || usize::try_from(value.as_u64().expect("a number")).expect("a small number");
        match name.as_str() {
            "lowercase" => options.lowercase = flag(),
            "replace_null" => options.replace_null = flag(),
            "no_digits" => options.no_digits = flag(),
            "keep_comment" => options.keep_comment = flag(),
            "max_query_length" => options.max_query_length = number(),
            "grouping_limit" => options.grouping_limit = number(),
            "groups_grouping_limit" => options.groups_grouping_limit = number(),
            other => panic!("{other} is no option"),
        }
    }
    options
}

#[test]
fn text_and_hash_are_as_recorded() {
    let mut wrong = Vec::new();
    for case in cases() {
        let field = |name: &str| case[name].as_str().expect("a string").to_owned();
        let mut digester = Digester::new(options(&case));
        let digest = digester.digest(field("statement").as_bytes());
        let text = String::from_utf8_lossy(digest.text);
        let hash = format!("0x{:016X}", digest.hash);
        if (&*text, &hash) != (&field("digest_text"), &field("digest")) {
            wrong.push(format!("{case}\n  made {text:?} {hash}"));
        }
    }
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn one_digester_serves_any_order() {
    let mut digester = Digester::new(DigestOptions::default());
    let statements: Vec<String> =
        cases().map(|case| case["statement"].as_str().expect("a string").to_owned()).collect();
    let alone = |text: &str| Digester::new(DigestOptions::default()).digest(text.as_bytes()).hash;
    for text in statements.iter().chain(statements.iter().rev()) {
        assert_eq!(digester.digest(text.as_bytes()).hash, alone(text), "{text}");
    }
}

#[test]
fn only_so_much_of_the_text_is_kept_and_hashed() {
    let mut short = Digester::new(DigestOptions { max_digest_length: 16, ..DigestOptions::default() });
    let digest = short.digest(b"SELECT abc, def FROM one");
    assert_eq!(digest.text, b"SELECT abc,def F");
    let hash = digest.hash;
    assert_eq!(short.digest(b"SELECT abc, def FROM another").hash, hash);
}
