//! Runs servers that say anything of themselves, for the fuzz targets and the corpus test. A broken rule panics, and so
//! does nothing else.

use crate::positions::{contains, covers};
use crate::{GaleraState, GroupState, Lag, Link, MemberRow, ReadOnlyCheck, ReplicaState, SourceLink};
use crate::{Gtid, GtidSet, GtidStream, INTERVALS_MAX};

/// More is not kept of any server.
const MEMBERS_MAX: usize = 128;

/// Lines of names and values (a tab between them, no tab for NULL), in sections that an empty line ends: the first has
/// variables. What follows is read as members of a group, a line each, and as sources of a replica, a section each.
pub fn fuzz_states(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let mut sections = text.split("\n\n");
    let variables: Vec<(&str, &str)> = pairs(sections.next().unwrap_or_default())
        .map(|(name, value)| (name, value.unwrap_or_default()))
        .collect();
    let sections: Vec<&str> = sections.collect();
    check_group(&variables, &sections);
    check_replica(&variables, &sections);
    let state = GaleraState::from_rows(variables.iter().copied());
    assert!(state.members.len() <= MEMBERS_MAX);
    assert!(variables.iter().any(|(name, _)| name.eq_ignore_ascii_case("wsrep_ready")) || !state.ready);
}

/// A line for each of three servers' positions: whichever has more, that is a matter of numbers.
pub fn fuzz_positions(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let mut lines = text.split('\n').chain(["", ""]);
    let (Some(one), Some(two), Some(three)) = (lines.next(), lines.next(), lines.next()) else { return };
    let is_understood = |text: &str| covers(text, text);
    for text in [one, two, three] {
        assert_eq!(contains(text, text), is_understood(text));
        let is_plain = text.bytes().all(|byte| byte.is_ascii_digit() || matches!(byte, b'-' | b','));
        assert!(!is_understood(text) || (is_plain && !text.is_empty()));
    }
    for has in [covers, contains] {
        assert!(!has(one, two) || (is_understood(one) && is_understood(two)));
        assert!(!has(one, two) || !has(two, three) || has(one, three));
        // With all of the other's there is nothing that is lacking.
        let both = format!("{one},{two}");
        assert_eq!(has(&both, one) && has(&both, two), is_understood(one) && is_understood(two));
        assert!(!has(one, three) || !is_understood(two) || has(&both, three));
        assert_eq!(has(three, &both), has(three, one) && has(three, two));
    }
    // The numbers of each server are more than those of each domain.
    assert!(!contains(one, two) || covers(one, two));
}

/// A transaction's id in the first line, then what a binlog reader tells, or a server: the set is the same in whichever pieces
/// it comes.
pub fn fuzz_gtids(data: &[u8]) {
    let end = data.iter().position(|byte| *byte == b'\n').unwrap_or(data.len());
    let (line, rest) = (&data[..end], data.get(end + 1..).unwrap_or_default());
    let gtid = Gtid::parse(line);
    if let Some(gtid) = &gtid {
        assert_eq!(Gtid::parse(gtid.to_string().as_bytes()).as_ref(), Some(gtid));
        let only = GtidSet::parse(line);
        assert!(only.is_ok_and(|set| set.has(gtid) && set.intervals() == 1));
    }
    if let Ok(set) = GtidSet::parse(rest) {
        check_set(&set, gtid.as_ref());
    }
    let whole = read_stream(&[rest]);
    let pieces: Vec<&[u8]> = rest.chunks(1 + line.len() % 7).collect();
    assert_eq!(whole.is_some(), read_stream(&pieces).is_some());
    if let (Some(whole), Some(parted)) = (whole, read_stream(&pieces)) {
        assert_eq!(whole, parted);
        check_set(&whole, gtid.as_ref());
    }
}

fn check_set(set: &GtidSet, gtid: Option<&Gtid>) {
    assert!(set.intervals() <= INTERVALS_MAX && set.is_empty() == (set.intervals() == 0));
    let again = GtidSet::parse(set.to_string().as_bytes());
    assert!(
        again.is_ok_and(|again| gtid.is_none_or(|gtid| again.has(gtid) == set.has(gtid)) && again == *set)
    );
}

/// What is executed after all of it; none if something ends the stream.
fn read_stream(pieces: &[&[u8]]) -> Option<GtidSet> {
    let (mut stream, mut set) = (GtidStream::default(), GtidSet::default());
    for piece in pieces {
        let told = stream.take(piece).ok()?;
        set = told.first.unwrap_or(set);
        for (source, from, to) in told.more {
            set.insert(source, from, to).ok()?;
        }
    }
    Some(set)
}

fn check_group(variables: &[(&str, &str)], sections: &[&str]) {
    let rows: Vec<MemberRow<'_>> =
        sections.iter().flat_map(|section| section.lines()).map(member_row).collect();
    let state = GroupState::from_rows(variables.iter().copied(), rows.iter().copied());
    assert!(state.members.windows(2).all(|pair| pair[0].id != pair[1].id && pair[0] < pair[1]));
    assert!(state.members.iter().all(|member| !member.id.is_empty()));
    assert!(state.members.is_empty() || state.members.len() == rows.len());
    // Nobody is well without being in the list that it shows.
    assert!(!state.is_online() || state.own().is_some_and(|own| own.state.is_reachable()));
    assert!(!state.has_quorum() || !state.members.is_empty());
    assert!(!state.is_online() || (state.view_number > 0 && !state.view_prefix.is_empty()));
    let is_off = |wanted: &str| variables.iter().any(|(name, _)| name.eq_ignore_ascii_case(wanted));
    assert!(is_off("read_only") || state.read_only, "writable without having said so");
    // The order of the rows is the server's whim.
    let reversed = GroupState::from_rows(variables.iter().copied(), rows.iter().rev().copied());
    assert_eq!(reversed.members, state.members);
}

fn check_replica(variables: &[(&str, &str)], sections: &[&str]) {
    let state = |sources: &[&str]| {
        ReplicaState::from_rows(variables.iter().copied(), sources.iter().map(|source| pairs(source)))
    };
    let whole = state(sections);
    assert_eq!(whole.lag == Lag::NoReplica, sections.is_empty());
    assert_eq!(whole.source.is_none(), sections.is_empty());
    // Of several nobody knows who speaks, so none of them is lost or there.
    let is_one =
        |link: &SourceLink| sections.len() == 1 || (link.link == Link::Idle && link.endpoint.is_none());
    assert!(whole.source.as_ref().is_none_or(is_one));
    assert!(
        whole.id.chars().count() <= 64
            && whole.source.as_ref().is_none_or(|link| link.id.chars().count() <= 64)
    );
    for source in sections {
        assert!(state(&[source]).lag <= whole.lag, "another source makes it look better");
        assert!(
            !source.to_ascii_lowercase().contains("running") || is_told_right(source, state(&[source]).lag)
        );
    }
    if let (Ok(both), Ok(either)) =
        (whole.is_read_only(ReadOnlyCheck::Both), whole.is_read_only(ReadOnlyCheck::Either))
    {
        assert!(!both || either);
    }
}

/// A number of seconds is told only where no thread is said to stand still.
fn is_told_right(source: &str, lag: Lag) -> bool {
    let stands = pairs(source).any(|(name, value)| {
        let is_thread =
            ["replica_io_running", "replica_sql_running", "slave_io_running", "slave_sql_running"]
                .iter()
                .any(|thread| name.eq_ignore_ascii_case(thread));
        is_thread && !value.is_some_and(|value| value.trim().eq_ignore_ascii_case("Yes"))
    });
    !stands || lag == Lag::Stopped
}

fn pairs(section: &str) -> impl Iterator<Item = (&str, Option<&str>)> {
    section.lines().map(|line| match line.split_once('\t') {
        Some((name, value)) => (name, Some(value)),
        None => (line, None),
    })
}

fn member_row(line: &str) -> MemberRow<'_> {
    let mut columns = line.split('\t');
    let mut next = || columns.next().unwrap_or_default();
    MemberRow {
        id: next(),
        state: next(),
        role: next(),
        view_id: next(),
        certification_queue: next(),
        applier_queue: next(),
    }
}
