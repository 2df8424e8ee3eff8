//! The command line: help, checks, and what is printed where.

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use serde_json::Value;
use weir_testkit::{Process, Signal, WeirConfig, weir_binary};
use weir_tests::{Case, CaseResult, Env, ensure, eventually};

/// The cases of this module.
pub(crate) fn trials() -> Vec<Case> {
    vec![
        Case::parallel("cli::help_has_examples", help_has_examples),
        Case::parallel("cli::wrong_use_is_explained", wrong_use),
        Case::parallel("cli::json_is_nothing_but_json", json_outputs),
        Case::parallel("cli::json_of_a_check_tells_faults_and_what_servers_lack", json_of_check),
        Case::parallel("cli::exports_to_a_name_without_a_directory", export_here),
        Case::parallel("cli::check_finds_nothing_in_a_good_file", check_good),
        Case::parallel("cli::check_names_every_fault", check_bad),
        Case::parallel("cli::serve_refuses_a_faulty_file", serve_refuses),
        Case::parallel("cli::serve_names_a_port_in_use", port_in_use),
        Case::parallel("cli::logs_can_be_json", json_logs),
        Case::parallel("cli::log_level_silences", log_level),
    ]
}

fn weir(arguments: &[&str]) -> Result<Output, Box<dyn std::error::Error>> {
    Ok(Command::new(weir_binary()?).args(arguments).output()?)
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn help_has_examples(_: &Env) -> CaseResult {
    let help = weir(&["--help"])?;
    let text = stdout(&help);
    ensure!(help.status.success(), "{help:?}");
    let mut commands = Vec::new();
    for line in text.lines().skip_while(|line| !line.starts_with("Commands:")).skip(1) {
        let Some(command) = line.strip_prefix("  ").and_then(|line| line.split_whitespace().next()) else {
            break;
        };
        commands.push(command.to_owned());
    }
    ensure!(commands.contains(&"serve".to_owned()) && commands.contains(&"check".to_owned()), "{text}");
    ensure!(text.contains("Examples:"), "{text}");
    for command in commands.iter().filter(|command| *command != "help") {
        let help = weir(&[command, "--help"])?;
        let text = stdout(&help);
        ensure!(help.status.success(), "{command}: {help:?}");
        let examples = text.split("Examples:").nth(1).unwrap_or_default();
        ensure!(
            examples.contains(&format!("weir {command} ")),
            "{command} has no example of itself:\n{text}"
        );
        ensure!(stdout(&weir(&[command, "-h"])?).contains("Usage:"), "{command} -h");
        ensure!(text.contains("Exit status: "), "{command} --help:\n{text}");
    }
    let version = weir(&["--version"])?;
    ensure!(stdout(&version).starts_with("weir "), "{version:?}");
    Ok(())
}

/// All commands with their own: `["config", "check"]`.
fn all_commands(of: &[&str]) -> Result<Vec<Vec<String>>, Box<dyn std::error::Error>> {
    let text = stdout(&weir(&[of, &["--help"]].concat())?);
    let mut all = Vec::new();
    for line in text.lines().skip_while(|line| !line.starts_with("Commands:")).skip(1) {
        let Some(name) = line.strip_prefix("  ").and_then(|line| line.split_whitespace().next()) else {
            break;
        };
        if name == "help" {
            continue;
        }
        let command = [of, &[name]].concat();
        let own = all_commands(&command)?;
        let is_leaf = own.is_empty();
        all.extend(own);
        all.extend(is_leaf.then(|| command.iter().map(|&word| word.to_owned()).collect()));
    }
    Ok(all)
}

/// One value, or one a line.
fn parse_json(text: &str) -> Result<Vec<Value>, serde_json::Error> {
    serde_json::Deserializer::from_str(text).into_iter().collect()
}

fn json_outputs(env: &Env) -> CaseResult {
    // Nobody is behind it, so that a cluster has no writer.
    let servers = ["127.0.0.1:1".parse()?, "127.0.0.1:2".parse()?];
    let running = env.weir_with(&WeirConfig::for_servers(&servers, env.free_address()?))?;
    let config = as_text(running.config_path()).to_owned();
    let bad = env.dir()?.join("cli-json-bad.toml");
    fs::write(&bad, "[mysql_variables]\nthreads = 'many'\n")?;
    let (bad, nowhere) = (as_text(&bad), "/nowhere");
    let other = env.dir()?.join("cli-json-other.toml");
    fs::write(
        &other,
        fs::read_to_string(&config)?.replace("127.0.0.1\"\nport = 2", "127.0.0.1\"\nport = 3"),
    )?;
    let other = as_text(&other);
    // What is run, its exit status, and whether there is an answer.
    let runs: &[(&[&str], i32, bool)] = &[
        (&["status", "-c", &config], 3, true),
        (&["status", "--log", "-c", &config], 0, true),
        (&["status", "--datadir", nowhere], 1, false),
        (&["check", "-c", &config], 0, true),
        (&["check", "-c", bad], 1, true),
        (&["check", "-c", &config, "--cluster"], 3, true),
        (&["config", "check", "-c", &config], 0, true),
        (&["config", "check", "-c", nowhere], 1, true),
        (&["config", "diff", "-c", &config, "--with", &config], 0, true),
        (&["config", "diff", "-c", &config, "--with", other], 3, true),
        (&["config", "diff", "-c", &config, "--with", bad], 1, false),
        (&["config", "import", &config, "--dry-run"], 0, true),
        (&["config", "import", bad, "--dry-run"], 1, false),
        (&["stats", "digests", "--datadir", nowhere], 1, false),
        (&["drain", "127.9.9.9:3306", "-c", &config], 1, false),
        (&["undrain", "127.9.9.9:3306", "-c", &config], 1, false),
        (&["switchover", "100", "-c", &config, "--dry-run"], 1, false),
        (&["donor", "4711", "-c", &config], 1, false),
        (&["init", "mysql://root:x@127.0.0.1:1", "--dry-run"], 1, false),
    ];
    let mut runs: Vec<(Vec<&str>, i32, bool)> =
        runs.iter().map(|(run, status, has_answer)| (run.to_vec(), *status, *has_answer)).collect();
    let help = stdout(&weir(&["stats", "--help"])?);
    let subjects: Vec<&str> =
        help.lines().filter_map(|line| line.trim().strip_prefix("- ")?.split(':').next()).collect();
    ensure!(subjects.contains(&"digests") && subjects.contains(&"logs"), "{help}");
    runs.extend(subjects.iter().map(|subject| (vec!["stats", subject, "-c", &config], 0, true)));
    for (run, status, has_answer) in &runs {
        let output = weir(&[run.as_slice(), &["--json"]].concat())?;
        let (out, err) = (stdout(&output), stderr(&output));
        ensure!(output.status.code() == Some(*status), "{run:?}: {:?}\n{out}\n{err}", output.status);
        let values = parse_json(&out).map_err(|error| format!("{run:?}: {error}:\n{out}"))?;
        ensure!(*has_answer || values.is_empty() && !err.is_empty(), "{run:?}: {out}\n{err}");
        ensure!(!*has_answer || err.is_empty(), "{run:?}: {err}");
        let is_list = run[0] == "stats" || run.contains(&"--log");
        ensure!(!*has_answer || is_list || values.len() == 1, "{run:?}: {out}");
        if let Some(good) = values.first().and_then(|value| value.get("good")) {
            ensure!(good.as_bool() == Some(*status == 0), "{run:?}: {out}");
        }
    }
    for command in all_commands(&[])? {
        let words: Vec<&str> = command.iter().map(String::as_str).collect();
        let has_json = stdout(&weir(&[&words, ["--help"].as_slice()].concat())?).contains("--json");
        let is_run = runs.iter().any(|(run, ..)| run.starts_with(&words));
        ensure!(!has_json || is_run, "nobody looks at the JSON of {words:?}");
    }
    Ok(())
}

fn json_of_check(env: &Env) -> CaseResult {
    let servers = ["127.0.0.1:1".parse()?];
    let text =
        WeirConfig::for_servers(&servers, env.free_address()?).render(&env.dir()?.join("cli-check-data"));
    let path = env.dir()?.join("cli-check.toml");
    fs::write(&path, &text)?;
    let check = |arguments: &[&str]| -> Result<Value, Box<dyn std::error::Error>> {
        let output = weir(&[&["check", "--json", "-c", as_text(&path)], arguments].concat())?;
        Ok(serde_json::from_slice(&output.stdout)?)
    };
    let found = check(&["--cluster"])?;
    let server = &found["cluster"]["servers"][0];
    ensure!(found["good"] == false && server["server"] == "127.0.0.1:1", "{found}");
    ensure!(server["missing"][0]["lost"] == "the server gets no role", "{found}");
    ensure!(check(&[])?.get("cluster").is_none(), "nobody asked for it");
    fs::write(&path, text.replacen("max_writers = 1", "max_writer = 1", 1))?;
    let found = check(&["--cluster"])?;
    let fault = &found["faults"][0];
    ensure!(found["good"] == false && fault["key"] == "mysql_galera_hostgroups[0].max_writer", "{found}");
    Ok(())
}

fn export_here(env: &Env) -> CaseResult {
    let (path, _) = good_file(env, "cli-export")?;
    let dir = env.dir()?.join("cli-export-here");
    fs::create_dir_all(&dir)?;
    let mut command = Command::new(weir_binary()?);
    command.args(["config", "export", "-o", "x.toml", "-c", as_text(&path)]);
    let output = command.current_dir(&dir).output()?;
    ensure!(output.status.success(), "{}", stderr(&output));
    let exported = as_text(&dir.join("x.toml")).to_owned();
    let same = weir(&["config", "diff", "-c", as_text(&path), "--with", &exported])?;
    ensure!(same.status.success(), "{}", stdout(&same));
    // A user whose hostgroup nobody serves has no place in Weir's own file.
    let cnf = dir.join("lost.cnf");
    fs::write(&cnf, "mysql_users = ( { username = \"lost\", password = \"x\", default_hostgroup = 9 } )\n")?;
    let output = weir(&["config", "export", "-c", as_text(&cnf)])?;
    ensure!(output.status.code() == Some(3), "{:?}", output.status);
    ensure!(
        stderr(&output).contains("mysql_users (lost, 1): hostgroup 9 has no server"),
        "{}",
        stderr(&output)
    );
    ensure!(
        stdout(&output).contains("# [[mysql_users]]  # hostgroup 9 has no server"),
        "{}",
        stdout(&output)
    );
    Ok(())
}

fn wrong_use(_: &Env) -> CaseResult {
    for (arguments, wanted) in [
        ([].as_slice(), "Usage:"),
        (&["serv"], "serve"),
        (&["check"], "--config"),
        (&["serve", "--confg", "x"], "--config"),
        (&["serve", "-c", "x", "--log-format", "xml"], "json"),
    ] {
        let output = weir(arguments)?;
        ensure!(output.status.code() == Some(2), "{arguments:?}: {:?}", output.status);
        ensure!(stderr(&output).contains(wanted), "{arguments:?}: {}", stderr(&output));
        ensure!(output.stdout.is_empty(), "{arguments:?}: {}", stdout(&output));
    }
    Ok(())
}

/// A good configuration in a file of its own; needs no cluster.
fn good_file(env: &Env, name: &str) -> Result<(std::path::PathBuf, String), Box<dyn std::error::Error>> {
    let servers = ["127.0.0.1:1".parse()?, "127.0.0.1:2".parse()?];
    let dir = env.dir()?;
    let text =
        WeirConfig::for_servers(&servers, env.free_address()?).render(&dir.join(format!("{name}-data")));
    let path = dir.join(format!("{name}.toml"));
    fs::write(&path, &text)?;
    Ok((path, text))
}

fn as_text(path: &Path) -> &str {
    path.to_str().unwrap_or_default()
}

fn check_good(env: &Env) -> CaseResult {
    let (path, _) = good_file(env, "cli-good")?;
    let output = weir(&["check", "-c", as_text(&path)])?;
    ensure!(output.status.code() == Some(0), "{}", stderr(&output));
    ensure!(stdout(&output).contains("good"), "{}", stdout(&output));
    ensure!(output.stderr.is_empty(), "{}", stderr(&output));
    Ok(())
}

fn check_bad(env: &Env) -> CaseResult {
    let (path, text) = good_file(env, "cli-bad")?;
    let line_of = |start: &str| text.lines().position(|line| line.starts_with(start)).unwrap_or(0) + 1;
    let bad = text
        .replacen("port = 1", "port = 70000", 1)
        .replacen("max_writers = 1", "max_writer = 1", 1)
        .replacen("monitor_username =", "monitor_user_name =", 1);
    fs::write(&path, bad)?;
    let output = weir(&["check", "-c", as_text(&path)])?;
    let errors = stderr(&output);
    ensure!(output.status.code() == Some(1), "{:?}: {errors}", output.status);
    ensure!(output.stdout.is_empty(), "{}", stdout(&output));
    for (line, key, hint) in [
        (line_of("port = 1"), "mysql_servers[0].port", "70000"),
        (line_of("max_writers"), "mysql_galera_hostgroups[0].max_writer", "max_writers"),
        (line_of("monitor_username"), "mysql_variables.monitor_user_name", "monitor_username"),
    ] {
        let wanted = format!("{}:{line}: {key}", as_text(&path));
        let said = errors.lines().find(|said| said.contains(&format!(":{line}: {key}")));
        ensure!(said.is_some_and(|said| said.contains(hint)), "no line {wanted} ... {hint} in:\n{errors}");
    }
    let missing = weir(&["check", "-c", "/nonexistent/weir.toml"])?;
    let errors = stderr(&missing);
    ensure!(missing.status.code() == Some(1) && errors.contains("/nonexistent/weir.toml"), "{errors}");
    Ok(())
}

fn serve_refuses(env: &Env) -> CaseResult {
    let (path, text) = good_file(env, "cli-serve")?;
    fs::write(&path, text.replacen("port = 1", "port = 'one'", 1))?;
    let output = weir(&["serve", "-c", as_text(&path)])?;
    ensure!(output.status.code() == Some(1), "{:?}", output.status);
    ensure!(stderr(&output).contains("mysql_servers[0].port"), "{}", stderr(&output));
    let level = weir(&["serve", "-c", as_text(&path), "--log-level", "a=b=c"])?;
    ensure!(!level.status.success() && stderr(&level).contains("--log-level"), "{}", stderr(&level));
    Ok(())
}

fn port_in_use(env: &Env) -> CaseResult {
    let (path, text) = good_file(env, "cli-port")?;
    let address = text.lines().find_map(|line| line.strip_prefix("interfaces = ")).ok_or("no interfaces")?;
    let address = address.trim_matches('"').to_owned();
    let _holder = TcpListener::bind(&address)?;
    let output = weir(&["serve", "-c", as_text(&path)])?;
    ensure!(output.status.code() == Some(1), "{:?}", output.status);
    ensure!(stderr(&output).contains(&address), "{address} is not named: {}", stderr(&output));
    Ok(())
}

/// Runs `weir serve` with these options until it listens and has drained; returns what it printed.
fn serve(
    env: &Env,
    name: &str,
    options: &[&str],
    listens: &str,
) -> Result<String, Box<dyn std::error::Error>> {
    let (path, _) = good_file(env, name)?;
    let log = env.dir()?.join(format!("{name}.log"));
    let file = fs::File::create(&log)?;
    let mut command = Command::new(weir_binary()?);
    command.args(["serve", "-c", as_text(&path)]).args(options);
    let process = Process::spawn(name, command.stdout(file.try_clone()?).stderr(file))?;
    let printed = || fs::read_to_string(&log).unwrap_or_default();
    if listens.is_empty() {
        std::thread::sleep(Duration::from_millis(700));
    } else {
        eventually("weir listens", Duration::from_secs(10), || Ok(printed().contains(listens)))?;
    }
    process.signal(Signal::TERM)?;
    let status = process.wait_exit(Duration::from_secs(10)).ok_or("did not end")?;
    ensure!(status.success(), "{status}: {}", printed());
    Ok(printed())
}

fn json_logs(env: &Env) -> CaseResult {
    let printed = serve(env, "cli-json", &["--log-format", "json"], "listening")?;
    let mut messages = Vec::new();
    for line in printed.lines() {
        let entry: Value = serde_json::from_str(line).map_err(|error| format!("{line}: {error}"))?;
        for key in ["timestamp", "level", "target"] {
            ensure!(entry[key].is_string(), "{line} has no {key}");
        }
        messages.extend(entry["fields"]["message"].as_str().map(str::to_owned));
    }
    ensure!(messages.iter().any(|message| message == "listening"), "{messages:?}");
    ensure!(messages.iter().any(|message| message == "drained"), "{messages:?}");
    let text = serve(env, "cli-text", &[], "listening")?;
    ensure!(!text.contains('{') && !text.contains('\u{1b}'), "no plain text: {text}");
    Ok(())
}

fn log_level(env: &Env) -> CaseResult {
    let printed = serve(env, "cli-error", &["--log-level", "error"], "")?;
    ensure!(!printed.contains("INFO") && !printed.contains("WARN"), "{printed}");
    Ok(())
}
