//! Removes blanks and signs that say nothing: `a , b` is `a,b`, `( 1 )` is `(1)`, `= - 1` is `= ?`.
//!
//! The rules look at a byte, at the one behind it and at the two in front of it. They are what ProxySQL 2.7
//! does, with its oddities: a sign between two blanks goes away even in `a - b`. Since the text is changed in
//! place there, the two bytes in front are *what stands in the buffer by then*: once a byte has gone, the
//! second of them is the last byte written. Digests of real statements depend on it.

use super::{DigestOptions, is_word};

/// What the pass has to do at a byte.
const PLAIN: u8 = 0;
const SPACE: u8 = 1;
const SIGN: u8 = 2;
const COMMA: u8 = 3;
const DIGIT: u8 = 4;

static CLASSES: [u8; 256] = {
    let mut classes = [PLAIN; 256];
    classes[b' ' as usize] = SPACE;
    classes[b'+' as usize] = SIGN;
    classes[b'-' as usize] = SIGN;
    classes[b',' as usize] = COMMA;
    let mut digit = b'0';
    while digit <= b'9' {
        classes[digit as usize] = DIGIT;
        digit += 1;
    }
    classes
};

/// Tightens `text` in place. With `no_digits` each run of digits that is left becomes `?`, unless one stands
/// in front of it or nothing does. Says whether something looks like a list of literals (`?,`).
pub(super) fn tighten(text: &mut Vec<u8>, options: &DigestOptions) -> bool {
    let DigestOptions { no_digits, keep_comment, .. } = *options;
    let buffer = text.as_mut_slice();
    let mut to = 0;
    let mut has_list = false;
    for from in 0..buffer.len() {
        let mut byte = buffer[from];
        let keep = match CLASSES[usize::from(byte)] {
            PLAIN => true,
            COMMA => {
                has_list |= to > 0 && buffer[to - 1] == b'?';
                true
            }
            DIGIT if !no_digits => true,
            DIGIT => {
                byte = b'?';
                from > 0 && !matches!(buffer[from - 1], b'?' | b'0'..=b'9')
            }
            _ if from == 0 => true,
            class => {
                let next = buffer.get(from + 1).copied().unwrap_or(0);
                let before = buffer[from - 1];
                let second = if from > 1 { buffer[from - 2] } else { 0 };
                let ends_comment = keep_comment && second == b'*' && before == b'/';
                match class {
                    SPACE => space_stays(before, next) || ends_comment && next == b'?',
                    _ => sign_stays(second, before, next),
                }
            }
        };
        if keep {
            buffer[to] = byte;
            to += 1;
        }
    }
    text.truncate(to);
    has_list
}

fn space_stays(before: u8, next: u8) -> bool {
    let needless = matches!(before, b'(' | b',')
        || matches!(next, b')' | b',')
        || before == b'?' && is_operator(next)
        || is_operator(before) && next == b'?';
    !needless
}

/// Whether the sign stays that has `second` and `before` in front of it: it does where it computes something,
/// as far as that can be seen from so little.
fn sign_stays(second: u8, before: u8, next: u8) -> bool {
    let ends_operand = |byte| matches!(byte, b'?' | b')');
    if matches!(next, b'?' | b' ') {
        is_word(before) || ends_operand(before) || before == b' ' && ends_operand(second)
    } else {
        !(before == b' ' && is_word(second))
    }
}

/// Whether `byte` computes something. What it is applied to is no longer known to be a literal by itself.
pub(super) fn is_operator(byte: u8) -> bool {
    matches!(byte, b'+' | b'-' | b'*' | b'/' | b'%')
}
