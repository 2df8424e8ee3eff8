//! The fake server is one, as far as a client can tell.

use weir_protocol::error::ACCESS_DENIED;
use weir_testkit::wire::{Login, RawClient};
use weir_testkit::{Account, FakeGreeting, FakeServer, Script};
use weir_tests::{Case, CaseResult, Env, ensure};

/// The cases of this module.
pub(crate) fn trials() -> Vec<Case> {
    vec![Case::parallel("fake_server::greets_and_answers_by_script", greets_and_answers_by_script)]
}

fn greets_and_answers_by_script(_: &Env) -> CaseResult {
    let server = FakeServer::with_login(FakeGreeting::default(), |login| match login.user.as_str() {
        "app" => Script::new().query("SELECT 1").err(ACCESS_DENIED, "not today").ok_to_all(),
        _ => Script::new(),
    })?;
    let mut client = RawClient::login(server.addr(), &Login::new(Account::APP).schema("test"))?;
    ensure!(client.greeting().version.contains("MariaDB"), "greeting: {:?}", client.greeting());
    let refused = client.query("SELECT 1")?;
    ensure!(refused.err()?.message == b"not today", "{:?}", refused.packets);
    client.query("SELECT 2")?.ok()?;

    let mut other = RawClient::login(server.addr(), &Login::new(Account::APP2))?;
    ensure!(other.packets().is_closed(), "a script without steps leaves the connection open");
    ensure!(server.failures().is_empty(), "{:?}", server.failures());
    Ok(())
}
