//! `weir top` in a real terminal (tmux): what is shown, at any size, and that it ends with its terminal.

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use weir_testkit::{Weir, WeirConfig, weir_binary};
use weir_tests::{Case, CaseResult, Env, Session, ensure, eventually};

const SHOWN_TIMEOUT: Duration = Duration::from_secs(30);

/// The cases of this module.
pub(crate) fn trials() -> Vec<Case> {
    vec![
        Case::parallel("terminal::top_fills_the_terminal_and_follows_its_size", follows_size),
        Case::parallel(
            "terminal::top_ends_by_key_and_by_signal_and_leaves_a_usable_terminal",
            ends_by_signal,
        ),
        Case::parallel("terminal::top_ends_with_its_terminal", ends_with_terminal),
        Case::parallel("terminal::top_ends_with_its_terminal_without_a_signal", ends_without_signal),
    ]
}

/// A terminal that a shell runs in, with a tmux server of its own.
pub(crate) struct Screen {
    socket: PathBuf,
}

impl Screen {
    pub(crate) fn open(env: &Env, name: &str, shell: &str) -> Result<Self, Box<dyn Error>> {
        let socket = env.dir()?.join(format!("{name}.tmux"));
        let screen = Self { socket };
        screen.tmux(&["new-session", "-d", "-x", "130", "-y", "40", "-s", "top", shell])?;
        Ok(screen)
    }

    fn tmux(&self, arguments: &[&str]) -> Result<String, Box<dyn Error>> {
        let mut command = Command::new("tmux");
        command.args(["-f", "/dev/null", "-S"]).arg(&self.socket).args(arguments);
        let output = command.env_remove("TMUX").output().map_err(|error| format!("tmux: {error}"))?;
        let error = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "tmux {arguments:?}: {error}");
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// What can be seen, a line each.
    pub(crate) fn lines(&self) -> Result<Vec<String>, Box<dyn Error>> {
        Ok(self.tmux(&["capture-pane", "-p", "-t", "top"])?.lines().map(str::to_owned).collect())
    }

    fn shows(&self, text: &str) -> Result<bool, Box<dyn Error>> {
        Ok(self.lines()?.iter().any(|line| line.contains(text)))
    }

    pub(crate) fn wait_shown(&self, text: &str) -> CaseResult {
        eventually(&format!("{text:?} on the screen"), SHOWN_TIMEOUT, || self.shows(text))
    }

    pub(crate) fn types(&self, keys: &[&str]) -> CaseResult {
        self.tmux(&[["send-keys", "-t", "top"].as_slice(), keys].concat())?;
        Ok(())
    }

    /// A value of tmux' about this terminal, such as `alternate_on`.
    fn value(&self, name: &str) -> Result<String, Box<dyn Error>> {
        let format = format!("#{{{name}}}");
        Ok(self.tmux(&["display-message", "-p", "-t", "top", &format])?.trim().to_owned())
    }

    /// The program of a shell that has one child.
    fn child(&self) -> Result<u32, Box<dyn Error>> {
        let shell: u32 = self.value("pane_pid")?.parse()?;
        let children = fs::read_to_string(format!("/proc/{shell}/task/{shell}/children"))?;
        Ok(children.split_whitespace().next().ok_or("the shell runs nothing")?.parse()?)
    }

    /// Takes the terminal away, as closing a window or losing a connection does.
    fn close(&self) -> CaseResult {
        self.tmux(&["kill-server"])?;
        Ok(())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = self.tmux(&["kill-server"]);
    }
}

/// A Weir whose servers are not there: `weir top` has something to show all the same.
fn lonely_weir(env: &Env) -> Result<Weir, Box<dyn Error>> {
    let servers = ["127.0.0.1:1".parse()?, "127.0.0.1:2".parse()?];
    Ok(env.weir_with(&WeirConfig::for_servers(&servers, env.free_address()?))?)
}

fn top(weir: &Weir) -> Result<String, Box<dyn Error>> {
    Ok(format!("{} top --interval-ms 200 -c {}", weir_binary()?.display(), weir.config_path().display()))
}

/// Neither running nor spinning; who reaps it does not matter.
fn is_gone(pid: u32) -> bool {
    let Ok(stat) = fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("stat")) else {
        return true;
    };
    stat.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with(['Z', 'X']))
}

fn wait_gone(pid: u32, why: &str) -> CaseResult {
    eventually(&format!("the end of weir top {why}"), SHOWN_TIMEOUT, || Ok(is_gone(pid)))
}

fn follows_size(env: &Env) -> CaseResult {
    let weir = env.weir(|_| {})?;
    let mut pinned = Session::open(weir.addr(), "test")?;
    pinned.run("SET @kept = 1")?;
    pinned.rows("SELECT 'terminal', 1")?;
    let screen = Screen::open(env, "size", &format!("exec {}", top(&weir)?))?;
    for wanted in [
        "cluster of hostgroup 100: writer 127.",
        "SELECT ?,?",
        "user_variable",
        "q quit",
        "LAG",
        "  reads/s: ",
    ] {
        screen.wait_shown(wanted)?;
    }
    ensure!(screen.value("alternate_on")? == "1", "{:?}", screen.lines());
    let is_last = |height: usize| {
        let lines = screen.lines()?;
        Ok(lines.get(height - 1).is_some_and(|line| line.starts_with(" q quit")))
    };
    ensure!(is_last(40)?, "{:?}", screen.lines());
    for (columns, lines) in [(80, 24), (200, 60), (30, 10)] {
        screen.tmux(&["resize-window", "-t", "top", "-x", &columns.to_string(), "-y", &lines.to_string()])?;
        eventually(&format!("a picture of {columns} x {lines}"), SHOWN_TIMEOUT, || is_last(lines))?;
    }
    // New pictures keep coming, and keys are heard.
    screen.tmux(&["resize-window", "-t", "top", "-x", "150", "-y", "40"])?;
    pinned.rows("SELECT 'terminal', 1, 2")?;
    screen.wait_shown("SELECT ?,?,?")?;
    screen.types(&["h"])?;
    screen.wait_shown("Any key goes back")?;
    Ok(())
}

fn ends_by_signal(env: &Env) -> CaseResult {
    let weir = lonely_weir(env)?;
    let screen = Screen::open(env, "signal", "PS1='ready$ ' exec sh")?;
    screen.wait_shown("ready$")?;
    for name in ["q", "TERM", "HUP", "INT"] {
        screen.types(&[&format!("clear; {}; echo \"$? after\" {name}", top(&weir)?), "Enter"])?;
        screen.wait_shown("no writer")?;
        let pid = screen.child()?;
        if name == "q" {
            screen.types(&["q"])?;
        } else {
            let sent = Command::new("kill").args(["-s", name, &pid.to_string()]).status()?;
            ensure!(sent.success(), "kill -s {name} {pid}: {sent}");
        }
        wait_gone(pid, name)?;
        // The screen is the shell's again, and so is what is typed.
        screen.wait_shown(&format!("0 after {name}"))?;
        ensure!(screen.value("alternate_on")? == "0", "after {name}: {:?}", screen.lines());
        screen.types(&[
            "clear; stty -a | tr ' ;' '\\n\\n' | grep -x -e icanon -e echo -e isig | paste -sd+",
            "Enter",
        ])?;
        screen.wait_shown("isig+icanon+echo")?;
    }
    Ok(())
}

fn ends_with_terminal(env: &Env) -> CaseResult {
    let weir = lonely_weir(env)?;
    let screen = Screen::open(env, "closed", &format!("exec {}", top(&weir)?))?;
    screen.wait_shown("no writer")?;
    let pid: u32 = screen.value("pane_pid")?.parse()?;
    screen.close()?;
    wait_gone(pid, "after its terminal was closed")
}

/// A shell that ignores the hang-up goes on, so that nobody tells `weir top`.
fn ends_without_signal(env: &Env) -> CaseResult {
    let weir = lonely_weir(env)?;
    let (go, shell) = (env.dir()?.join("terminal-go"), format!("trap '' HUP; {}; ", top(&weir)?));
    let shell = format!("{shell} while [ ! -e {} ]; do sleep 0.1; done", go.display());
    let screen = Screen::open(env, "unheard", &shell)?;
    screen.wait_shown("no writer")?;
    let pid = screen.child()?;
    screen.close()?;
    let ended = wait_gone(pid, "after its terminal was gone");
    fs::write(&go, "")?;
    ended
}
