//! Runs that change nothing: told why not, or only shown.

use std::error::Error;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use weir_testkit::weir_binary;
use weir_tests::{Case, CaseResult, Env, ensure};

use super::{Init, json, succeeded, text_of};
use crate::terminal::Screen;

pub(super) fn trials() -> Vec<Case> {
    vec![
        Case::parallel("init::refusals_name_the_cause_and_print_nothing_else", refusals),
        Case::parallel("init::without_a_terminal_it_asks_for_yes", nobody_to_ask),
        Case::parallel("init::at_a_terminal_it_asks_for_passwords_and_before_it_changes_anything", asks),
        Case::parallel("init::a_dry_run_changes_nothing", dry_run),
        Case::parallel("init::a_file_that_says_something_else_stays", file_stays),
        Case::parallel("init::a_run_that_was_refused_in_the_middle_is_taken_up_again", taken_up),
        Case::parallel("init::an_account_that_exists_is_not_touched", existing_account),
        Case::parallel("init::json_tells_all_and_no_password", json_shape),
    ]
}

/// An account that may make others, on the shared cluster.
fn with_admin(env: &Env, case: &str) -> Result<Init, Box<dyn Error>> {
    let init = Init::new(env, case)?;
    env.cluster()?.node(1).root_query(&init.admin_sql("ALL"))?;
    env.wait_applied()?;
    Ok(init)
}

fn refusals(env: &Env) -> CaseResult {
    let init = with_admin(env, "refusals")?;
    let node = env.cluster()?.node(1).addr();
    let app = format!("mysql://app:app@{node}");
    let wrong = format!("mysql://{}:wrong@{node}", init.admin());
    let unasked = format!("mysql://{}@{node}", init.admin());
    for (address, status, told) in [
        (unasked.as_str(), 2, "and no terminal to ask for it: give --password-file"),
        (wrong.as_str(), 1, "the server refuses the login: error 1045"),
        ("mysql://root:s3cret@127.0.0.1:1", 1, "127.0.0.1:1: connecting: Connection refused"),
        ("mysql://root:s3cret@nobody.invalid", 1, "nobody.invalid:3306: "),
        (app.as_str(), 1, "may not make accounts (it lacks GRANT OPTION)"),
        ("mysql://root:s3cret@10.0.0.1:x", 2, "character 30: the port is not a number"),
        ("10.0.0.1", 2, "does not begin with mysql://"),
    ] {
        for more in [&[][..], &["--json"]] {
            // Without a terminal, wherever the tests are run.
            let mut command = Command::new("setsid");
            command
                .arg("--wait")
                .arg(weir_binary()?)
                .args(["init", address, "--yes", "-o", &text_of(&init.file)])
                .args(more)
                .stdin(Stdio::null());
            let output = command.env_remove("MYSQL_PWD").output()?;
            let error = String::from_utf8_lossy(&output.stderr);
            ensure!(output.status.code() == Some(status), "{address}: {}\n{error}", output.status);
            ensure!(error.contains(told) && !error.contains("s3cret"), "{address}: {error}");
            ensure!(output.stdout.is_empty(), "{address}: {output:?}");
        }
    }
    ensure!(!init.file.exists(), "a file was written");
    // Who may make no accounts sees what somebody would who may.
    let mut command = Command::new(weir_binary()?);
    command.args(["init", &app, "--dry-run", "-o", &text_of(&init.file), "--prefix", "init_refusals_"]);
    let shown = succeeded(&command.stdin(Stdio::null()).output()?)?;
    ensure!(
        shown.contains("may not make accounts") && shown.contains("CREATE USER 'init_refusals_monitor'@"),
        "{shown}"
    );
    // One that has no end.
    let admin = format!("mysql://{}@{node}", init.admin());
    let mut command = Command::new(weir_binary()?);
    command.args(["init", &admin, "--yes", "-o", "/dev/zero"]).env("MYSQL_PWD", init.admin());
    let output = command.stdin(Stdio::null()).output()?;
    let error = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.code() == Some(1) && error.contains("is no regular file"), "{error}");
    Ok(())
}

fn nobody_to_ask(env: &Env) -> CaseResult {
    let init = with_admin(env, "nobody")?;
    let output = init.run(env.cluster()?.node(1).addr(), &[])?;
    let (out, error) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    ensure!(output.status.code() == Some(2) && error.contains("--yes goes on without"), "{error}");
    ensure!(out.contains("CREATE USER 'init_nobody_monitor'@"), "it shows what it would do: {out}");
    ensure!(!init.file.exists() && accounts(env, "init_nobody_")? == 1, "something was changed");
    Ok(())
}

fn asks(env: &Env) -> CaseResult {
    let init = with_admin(env, "asks")?;
    let command = init.command(env.cluster()?.node(1).addr(), &["--user", "app"])?;
    let words: Vec<String> = [command.get_program()]
        .into_iter()
        .chain(command.get_args())
        .map(|word| format!("'{}'", word.to_string_lossy()))
        .collect();
    let line = format!("unset MYSQL_PWD; {}; echo ended with $?; exec sleep 60", words.join(" "));
    for (answer, ended, wanted) in [("n", "ended with 1", 1), ("y", "ended with 0", 3)] {
        let screen = Screen::open(env, &format!("init-{answer}"), &line)?;
        screen.wait_shown("Password of init_asks_admin at 127.")?;
        screen.types(&["init_asks_admin", "Enter"])?;
        screen.wait_shown("Password of app:")?;
        screen.types(&["app", "Enter"])?;
        screen.wait_shown("Go on? [y/N]")?;
        screen.types(&[answer, "Enter"])?;
        screen.wait_shown(ended)?;
        let shown = screen.lines()?.join("\n");
        ensure!(!shown.contains(": init_asks_admin") && !shown.contains("of app: app"), "{shown}");
        ensure!(
            accounts(env, "init_asks_")? == wanted && init.file.exists() == (wanted > 1),
            "{answer}: {shown}"
        );
    }
    Ok(())
}

/// How many accounts have names that begin so; the administrator's is one.
fn accounts(env: &Env, prefix: &str) -> Result<usize, Box<dyn Error>> {
    let like = prefix.replace('_', "\\_");
    Ok(env
        .cluster()?
        .node(1)
        .root_query(&format!("SELECT User FROM mysql.user WHERE User LIKE '{like}%'"))?
        .len())
}

fn dry_run(env: &Env) -> CaseResult {
    let init = with_admin(env, "dry")?;
    let unit = init.dir.join("weir.service");
    let out =
        succeeded(&init.run(env.cluster()?.node(1).addr(), &["--dry-run", "--systemd", &text_of(&unit)])?)?;
    ensure!(out.contains("Nothing was changed (--dry-run).") && out.contains("mysql_servers = ["), "{out}");
    ensure!(
        !init.file.exists() && !unit.exists() && accounts(env, "init_dry_")? == 1,
        "something was changed"
    );
    Ok(())
}

fn file_stays(env: &Env) -> CaseResult {
    let init = with_admin(env, "file")?;
    let node = env.cluster()?.node(1).addr();
    let mine = "[mysql_variables]\nmonitor_username = 'mine'\nmonitor_password = 'mine'\n";
    fs::write(&init.file, mine)?;
    let output = init.run(node, &["--yes"])?;
    let error = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.code() == Some(1) && error.contains("--force replaces it"), "{error}");
    ensure!(
        fs::read_to_string(&init.file)? == mine && accounts(env, "init_file_")? == 1,
        "something was changed"
    );
    let unit = init.dir.join("weir.service");
    let unit_file = text_of(&unit);
    let without = ["--no-several-weirs", "--no-follow-accounts"];
    let arguments = ["--yes", "--force", without[0], without[1], "--systemd", &unit_file];
    let out = succeeded(&init.run(node, &arguments)?)?;
    ensure!(out.contains("nobody can log in at Weir yet") && out.contains("(there are app, app2, "), "{out}");
    ensure!(fs::metadata(&init.file)?.permissions().mode() & 0o777 == 0o600, "others can read the file");
    let text = fs::read_to_string(&unit)?;
    ensure!(text.contains(&format!(" serve -c {} ", init.file.display())), "{text}");
    Ok(())
}

/// Whether there was a file before, or none.
fn taken_up(env: &Env) -> CaseResult {
    let init = Init::new(env, "taken")?;
    let node = env.cluster()?.node(1);
    node.root_query(&init.admin_sql("SELECT, INSERT, UPDATE, DELETE, CREATE, CREATE USER"))?;
    taken_up_with(env, &init, &["--yes"])?;
    let made = "SELECT CONCAT(QUOTE(User), '@', QUOTE(Host)) FROM mysql.user \
                WHERE User IN ('init_taken_monitor', 'init_taken_assist')";
    for account in node.root_query(made)?.concat() {
        node.root_query(&format!("DROP USER {account}"))?;
    }
    node.root_query(&format!("REVOKE SUPER ON *.* FROM {}@'%'", init.admin()))?;
    fs::write(&init.file, "mysql_variables = { monitor_username = 'mine', monitor_password = 'mine' }\n")?;
    taken_up_with(env, &init, &["--yes", "--force"])
}

fn taken_up_with(env: &Env, init: &Init, arguments: &[&str]) -> CaseResult {
    let node = env.cluster()?.node(1);
    let before = fs::read_to_string(&init.file).ok();
    let output = init.run(node.addr(), arguments)?;
    let error = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.code() == Some(1) && error.contains("refuses GRANT SUPER ON *.*"), "{error}");
    ensure!(error.contains("DROP USER 'init_taken_monitor'@"), "{error}");
    ensure!(fs::read_to_string(&init.file).ok() == before && accounts(env, "init_taken_")? == 3, "{error}");
    node.root_query(&format!("GRANT SUPER ON *.* TO {}@'%' WITH GRANT OPTION", init.admin()))?;
    succeeded(&init.run(node.addr(), arguments)?)?;
    let left: Vec<_> = fs::read_dir(&init.dir)?.flatten().map(|entry| entry.file_name()).collect();
    ensure!(left == ["weir.toml"], "{left:?}");
    Ok(())
}

fn existing_account(env: &Env) -> CaseResult {
    let init = with_admin(env, "existing")?;
    let node = env.cluster()?.node(1);
    let name = "init_existing_monitor";
    node.root_query(&format!("CREATE USER {name}@'%' IDENTIFIED BY 'mine'"))?;
    env.wait_applied()?;
    let output = init.run(node.addr(), &["--yes", "--account-host", "%"])?;
    let error = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.code() == Some(1) && error.contains("and its password is not known"), "{error}");
    ensure!(accounts(env, "init_existing_")? == 2, "an account was made");
    let monitor = format!("{name}:mine");
    let out = succeeded(&init.run(node.addr(), &["--yes", "--monitor", &monitor])?)?;
    ensure!(!out.contains(&format!("'{name}'@")) && out.contains(&format!("{name} logs in at")), "{out}");
    Ok(())
}

fn json_shape(env: &Env) -> CaseResult {
    let init = with_admin(env, "json")?;
    let node = env.cluster()?.node(1).addr();
    let arguments = ["--yes", "--json", "--no-assist", "--user", "app:app"];
    let output = init.run(node, &arguments)?;
    succeeded(&output)?;
    let done = json(&output)?;
    ensure!(
        done["kind"] == "galera" && done["is_done"] == true && done["missing"] == serde_json::json!([]),
        "{done}"
    );
    ensure!(done["servers"].as_array().is_some_and(|servers| servers.len() == 3), "{done}");
    ensure!(done["servers"][0]["rtt_us"].as_u64().is_some_and(|us| us > 0), "{done}");
    let made = done["created"].as_array().map_or(0, Vec::len);
    ensure!(made == 2, "an account and a file: {done}");
    ensure!(done["logins"].as_array().is_some_and(|logins| logins.len() == 3), "{done}");
    ensure!(done["next"].as_array().is_some_and(|next| next.len() == 2), "{done}");
    let text = fs::read_to_string(&init.file)?;
    let password = text.split("monitor_password = \"").nth(1).and_then(|rest| rest.split('"').next());
    let password = password.ok_or("no password")?;
    ensure!(!done.to_string().contains(password), "{done}");
    ensure!(text.contains("assist = \"off\""), "{text}");
    let again = json(&init.run(node, &arguments)?)?;
    ensure!(again["created"] == serde_json::json!([]) && again["is_done"] == true, "{again}");
    Ok(())
}
