//! Oracle MySQL behind Weir: what is other than with MariaDB.

use weir_tests::{Case, CaseResult, Env, Session, ensure};

/// The cases of this module.
pub(crate) fn trials() -> Vec<Case> {
    vec![Case::parallel("mysql::a_client_reaches_the_server_and_sees_its_version", reaches)]
}

fn reaches(env: &Env) -> CaseResult {
    let weir = env.mysql_weir(4)?;
    let mut session = Session::open(weir.addr(), "test")?;
    let version = session.value("SELECT VERSION()")?;
    ensure!(session.raw().greeting().version == version, "the greeting names another version than {version}");
    ensure!(session.value("SELECT CURRENT_USER()")? == "app@%", "another user");
    Ok(())
}
