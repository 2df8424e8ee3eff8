//! How a Weir begins: with nothing, with a file, with what was saved.

use std::time::Duration;

use weir_testkit::wire::{Login, RawClient};
use weir_testkit::{Account, WeirConfig};
use weir_tests::{Case, CaseResult, Env, Session, ensure, eventually};

/// The cases of this module.
pub(crate) fn trials() -> Vec<Case> {
    vec![Case::parallel("startup::an_empty_configuration_runs_until_it_gets_servers", empty_configuration)]
}

const PATIENCE: Duration = Duration::from_secs(20);

fn empty_configuration(env: &Env) -> CaseResult {
    let address = env.free_address()?;
    let weir = env.weir_with(&WeirConfig::new(address))?;
    let packet = RawClient::connect(weir.addr())?.authenticate(&Login::new(Account::APP))?;
    ensure!(packet.err()?.code == 1045, "nobody is known yet, but: {packet:?}");
    let config = WeirConfig::for_cluster(env.cluster()?, address);
    weir.reload(&config)?;
    weir.wait_log("configuration taken", PATIENCE)?;
    let mut session = Session::open(weir.addr(), "test")?;
    let value = session.value("SELECT 1")?;
    ensure!(value == "1", "{value}");
    // And back: those who are in may stay, nobody comes in any more.
    weir.reload(&WeirConfig::new(address))?;
    eventually("nobody is known again", PATIENCE, || {
        let packet = RawClient::connect(weir.addr())?.authenticate(&Login::new(Account::APP))?;
        Ok(packet.first() != Some(0) && packet.err()?.code == 1045)
    })
}
