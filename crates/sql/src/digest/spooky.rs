//! Computes SpookyHash V2, 64 bits of the 128-bit hash, with seed 0.
//!
//! Bob Jenkins's hash, by its public-domain description: <https://burtleburtle.net/bob/hash/spooky.html>.
//! ProxySQL names digests with it, so it has to be this one.

/// Added where there is nothing to mix: an odd number that is neither very regular nor very irregular.
const FILLER: u64 = 0xdead_beef_dead_beef;

/// A long message is mixed in blocks of twelve words.
const WORDS: usize = 12;
const BLOCK_BYTES: usize = WORDS * 8;

/// Shorter messages have a way of their own, with four words of state.
const LONG_BYTES_MIN: usize = 2 * BLOCK_BYTES;

/// The hash of `message`.
pub(crate) fn hash64(message: &[u8]) -> u64 {
    if message.len() < LONG_BYTES_MIN { short(message) } else { long(message) }
}

fn short(message: &[u8]) -> u64 {
    let mut state = [0, 0, FILLER, FILLER];
    let (chunks, mut rest) = message.as_chunks::<32>();
    for chunk in chunks {
        state[2] = state[2].wrapping_add(word(&chunk[..8]));
        state[3] = state[3].wrapping_add(word(&chunk[8..16]));
        short_mix(&mut state);
        state[0] = state[0].wrapping_add(word(&chunk[16..24]));
        state[1] = state[1].wrapping_add(word(&chunk[24..]));
    }
    if let Some((half, after)) = rest.split_first_chunk::<16>() {
        state[2] = state[2].wrapping_add(word(&half[..8]));
        state[3] = state[3].wrapping_add(word(&half[8..]));
        short_mix(&mut state);
        rest = after;
    }
    state[3] = state[3].wrapping_add((message.len() as u64) << 56);
    if rest.is_empty() {
        state[2] = state[2].wrapping_add(FILLER);
        state[3] = state[3].wrapping_add(FILLER);
    } else {
        let (low, high) = rest.split_at(rest.len().min(8));
        state[2] = state[2].wrapping_add(word(low));
        state[3] = state[3].wrapping_add(word(high));
    }
    short_end(&mut state);
    state[0]
}

/// Up to eight bytes as a little-endian number.
#[inline]
fn word(bytes: &[u8]) -> u64 {
    if let Ok(whole) = bytes.try_into() {
        return u64::from_le_bytes(whole);
    }
    bytes.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte))
}

#[inline]
fn short_mix(state: &mut [u64; 4]) {
    let [mut a, mut b, mut c, mut d] = *state;
    for [first, second, third, fourth] in [[50, 52, 30, 41], [54, 48, 38, 37], [62, 34, 5, 36]] {
        c = c.rotate_left(first).wrapping_add(d);
        a ^= c;
        d = d.rotate_left(second).wrapping_add(a);
        b ^= d;
        a = a.rotate_left(third).wrapping_add(b);
        c ^= a;
        b = b.rotate_left(fourth).wrapping_add(c);
        d ^= b;
    }
    *state = [a, b, c, d];
}

#[inline]
fn short_end(state: &mut [u64; 4]) {
    // Each step works on two neighbours of the ring d c, a d, b a, c b.
    const ROTATIONS: [u32; 11] = [15, 52, 26, 51, 28, 9, 47, 54, 32, 25, 63];
    for (step, rotation) in ROTATIONS.into_iter().enumerate() {
        let (target, source) = ((step + 3) % 4, (step + 2) % 4);
        state[target] ^= state[source];
        state[source] = state[source].rotate_left(rotation);
        state[target] = state[target].wrapping_add(state[source]);
    }
}

fn long(message: &[u8]) -> u64 {
    let mut state = [0; WORDS];
    for index in (2..WORDS).step_by(3) {
        state[index] = FILLER;
    }
    let (blocks, rest) = message.as_chunks::<BLOCK_BYTES>();
    for block in blocks {
        long_mix(&mut state, block);
    }
    let mut last = [0; BLOCK_BYTES];
    last[..rest.len()].copy_from_slice(rest);
    last[BLOCK_BYTES - 1] = rest.len() as u8;
    for (index, chunk) in last.as_chunks::<8>().0.iter().enumerate() {
        state[index] = state[index].wrapping_add(u64::from_le_bytes(*chunk));
    }
    for _ in 0..3 {
        long_end(&mut state);
    }
    state[0]
}

#[inline]
fn long_mix(state: &mut [u64; WORDS], block: &[u8; BLOCK_BYTES]) {
    const ROTATIONS: [u32; WORDS] = [11, 32, 43, 31, 17, 28, 39, 57, 55, 54, 22, 46];
    let words = block.as_chunks::<8>().0;
    for (i, rotation) in ROTATIONS.into_iter().enumerate() {
        let at = |offset: usize| (i + offset) % WORDS;
        state[i] = state[i].wrapping_add(u64::from_le_bytes(words[i]));
        state[at(2)] ^= state[at(10)];
        state[at(11)] ^= state[i];
        state[i] = state[i].rotate_left(rotation);
        state[at(11)] = state[at(11)].wrapping_add(state[at(1)]);
    }
}

#[inline]
fn long_end(state: &mut [u64; WORDS]) {
    const ROTATIONS: [u32; WORDS] = [44, 15, 34, 21, 38, 33, 10, 13, 38, 53, 42, 54];
    for (i, rotation) in ROTATIONS.into_iter().enumerate() {
        let at = |offset: usize| (i + offset) % WORDS;
        state[at(11)] = state[at(11)].wrapping_add(state[at(1)]);
        state[at(2)] ^= state[at(11)];
        state[at(1)] = state[at(1)].rotate_left(rotation);
    }
}
