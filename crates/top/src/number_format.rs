//! Formats numbers as few characters.

/// `7`, `950`, `12.3k`, `4.5M`.
pub(crate) fn number(number: f64) -> String {
    match number {
        n if n < 0.05 => "0".to_owned(),
        n if n < 10.0 => format!("{n:.1}"),
        n if n < 9_999.5 => format!("{n:.0}"),
        n if n < 999_950.0 => format!("{:.1}k", n / 1e3),
        n if n < 999_950_000.0 => format!("{:.1}M", n / 1e6),
        n => format!("{:.1}G", n / 1e9),
    }
}

/// `0`, `7`, `12.3k`: what is whole stays so.
pub(crate) fn whole(count: u64) -> String {
    if count < 10_000 { count.to_string() } else { number(count as f64) }
}

/// Microseconds as `85us`, `1.2ms`, `4.5s`, `3m`; a dash for none.
pub(crate) fn time(us: Option<f64>) -> String {
    match us {
        None => "-".to_owned(),
        Some(us) if us < 999.5 => format!("{us:.0}us"),
        Some(us) if us < 9_950.0 => format!("{:.1}ms", us / 1e3),
        Some(us) if us < 999_500.0 => format!("{:.0}ms", us / 1e3),
        Some(us) if us < 99_950_000.0 => format!("{:.1}s", us / 1e6),
        Some(us) if us < 5.9e9 => format!("{:.0}m", us / 6e7),
        Some(us) => format!("{:.0}h", us / 3.6e9),
    }
}

/// `3d 04:05:06`
pub(crate) fn uptime(ms: u64) -> String {
    let s = ms / 1000;
    let (days, hours, minutes, seconds) = (s / 86_400, s / 3600 % 24, s / 60 % 60, s % 60);
    let clock = format!("{hours:02}:{minutes:02}:{seconds:02}");
    if days == 0 { clock } else { format!("{days}d {clock}") }
}

/// What a client has written must not move the terminal's cursor.
pub(crate) fn harmless(text: &str) -> String {
    text.chars()
        .map(|c| {
            if c.is_whitespace() {
                ' '
            } else if c.is_control() {
                '\u{FFFD}'
            } else {
                c
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_characters() {
        let numbers = [0.0, 0.04, 0.5, 9.94, 10.0, 9_999.0, 10_000.0, 999_949.0, 999_950.0, 2e9];
        assert_eq!(
            numbers.map(number),
            ["0", "0", "0.5", "9.9", "10", "9999", "10.0k", "999.9k", "1.0M", "2.0G"]
        );
        assert_eq!([0, 9_999, 10_000].map(whole), ["0", "9999", "10.0k"]);
        let times = [0.4, 999.0, 1000.0, 9_949.0, 10_000.0, 999_499.0, 1e6, 99e6, 120e6, 7.2e9];
        assert_eq!(
            times.map(|us| time(Some(us))),
            ["0us", "999us", "1.0ms", "9.9ms", "10ms", "999ms", "1.0s", "99.0s", "2m", "2h"]
        );
        assert_eq!(time(None), "-");
        assert_eq!([3_723_000, 90_061_000].map(uptime), ["01:02:03", "1d 01:01:01"]);
        assert_eq!(harmless("a\tb\u{1b}[2J\n"), "a b\u{FFFD}[2J ");
    }
}
