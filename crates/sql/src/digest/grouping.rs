//! Shortens long lists of literals: `(?,?,?,?,?,?)` becomes `(?,?,?,...)`, and a long row of such groups
//! `(?,?,?,...),(?,?,?,...),...`.

use super::spacing::is_operator;

/// Shortens each list of literals in brackets that has two more than `limit`, or one more and something else
/// behind it. A literal behind an operator begins no list. `limit` 0 leaves all as they are. Says whether a list
/// was shortened.
pub(super) fn shorten_lists(text: &mut Vec<u8>, limit: usize) -> bool {
    if limit == 0 {
        return false;
    }
    let buffer = text.as_mut_slice();
    let (mut from, mut to) = (0, 0);
    let mut inside = false;
    let mut any = false;
    while from < buffer.len() {
        let byte = buffer[from];
        if inside && byte == b'?' && !(from > 0 && is_operator(buffer[to - 1])) {
            let (run, end) = list_at(buffer, from);
            if end - from >= limit * 2 + 3 {
                to = put_list(buffer, to, limit);
                // A comma stays in front of what is not a literal.
                from = if end > run { end } else { run - 1 };
                any = true;
                continue;
            }
            if run > from {
                buffer.copy_within(from..run, to);
                to += run - from;
                from = run;
                continue;
            }
        }
        match byte {
            b'(' => inside = true,
            b')' => inside = false,
            _ => {}
        }
        buffer[to] = byte;
        to += 1;
        from += 1;
    }
    text.truncate(to);
    any
}

/// The ends of the list that begins at `from`: of its `?,` and of all of it. The last literal belongs to it if
/// a bracket follows. It need not be a `?`: whatever byte stands in its place is taken for one.
fn list_at(text: &[u8], from: usize) -> (usize, usize) {
    let mut run = from;
    while text[run..].starts_with(b"?,") {
        run += 2;
    }
    let end = if text.get(run + 1) == Some(&b')') { run + 1 } else { run };
    (run, end)
}

fn put_list(buffer: &mut [u8], to: usize, limit: usize) -> usize {
    let dots = to + limit * 2;
    for pair in buffer[to..dots].chunks_exact_mut(2) {
        pair.copy_from_slice(b"?,");
    }
    buffer[dots..dots + 3].copy_from_slice(b"...");
    dots + 3
}

/// Shortens each row of more than `limit` equal groups that [`shorten_lists`] has left. `limit` 0 leaves all
/// as they are.
pub(super) fn shorten_groups(text: &mut Vec<u8>, list_limit: usize, limit: usize) {
    if limit == 0 || list_limit == 0 {
        return;
    }
    let buffer = text.as_mut_slice();
    let (mut from, mut to) = (0, 0);
    while from < buffer.len() {
        if buffer[from] == b'(' {
            let (count, end) = row_at(buffer, from, list_limit);
            let kept = if count > limit { limit * (group_bytes(list_limit) + 1) } else { end - from };
            if count > 0 {
                buffer.copy_within(from..from + kept, to);
                to += kept;
                if count > limit {
                    buffer[to..to + 3].copy_from_slice(b"...");
                    to += 3;
                }
                from = end;
                continue;
            }
        }
        buffer[to] = buffer[from];
        to += 1;
        from += 1;
    }
    text.truncate(to);
}

/// How many groups stand in a row at `from`, and the end of the row with a comma behind it.
fn row_at(text: &[u8], from: usize, list_limit: usize) -> (usize, usize) {
    let (mut count, mut at) = (0, from);
    while is_group(&text[at..], list_limit) {
        count += 1;
        at += group_bytes(list_limit);
        if text.get(at) != Some(&b',') {
            break;
        }
        at += 1;
    }
    (count, at)
}

/// The length of `(?,?,?,...)` in bytes.
fn group_bytes(list_limit: usize) -> usize {
    list_limit * 2 + 5
}

fn is_group(text: &[u8], list_limit: usize) -> bool {
    let Some(inside) = text.strip_prefix(b"(") else { return false };
    let Some((list, end)) = inside.split_at_checked(list_limit * 2) else { return false };
    end.starts_with(b"...)") && list.chunks_exact(2).all(|pair| pair == b"?,")
}
