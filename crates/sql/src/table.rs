//! Builds hash tables of names while compiling. Letter case of ASCII is folded.

/// The place of a name: which of the lists, and where in it.
#[derive(Clone, Copy)]
pub(crate) struct Slot {
    list: u8,
    /// Length in bytes; 0 marks an empty slot.
    len: u8,
    start: u16,
    tag: u16,
}

/// A table of `N` slots (a power of two, at most three quarters full) over lists of names separated by spaces.
pub(crate) struct NameTable<const N: usize> {
    lists: &'static [&'static str],
    slots: [Slot; N],
}

/// No name in any table is longer.
const NAME_BYTES_MAX: usize = 40;

impl<const N: usize> NameTable<N> {
    /// Builds the table. A name that stands twice, or too many names, fail the build.
    pub(crate) const fn new(lists: &'static [&'static str]) -> Self {
        assert!(N.is_power_of_two() && lists.len() < 256);
        let mut slots = [Slot { list: 0, len: 0, start: 0, tag: 0 }; N];
        let mut used = 0;
        let mut list = 0;
        while list < lists.len() {
            let bytes = lists[list].as_bytes();
            let mut at = 0;
            while at < bytes.len() {
                let start = at;
                while at < bytes.len() && bytes[at] != b' ' {
                    at += 1;
                }
                if at > start {
                    insert(lists, &mut slots, list, start, at);
                    used += 1;
                }
                at += 1;
            }
            list += 1;
        }
        assert!(used * 4 <= N * 3, "too many names for the table");
        Self { lists, slots }
    }

    /// The index of the list that has `name`.
    #[inline]
    pub(crate) fn find(&self, name: &[u8]) -> Option<u8> {
        if name.is_empty() || name.len() > NAME_BYTES_MAX {
            return None;
        }
        let hash = hash(name);
        let mut at = place(hash);
        loop {
            let slot = self.slots[at & (N - 1)];
            if slot.len == 0 {
                return None;
            }
            if slot.len as usize == name.len() && slot.tag == tag(hash) {
                let start = slot.start as usize;
                let known = self.lists[slot.list as usize].as_bytes().get(start..start + name.len());
                if known.is_some_and(|known| known.eq_ignore_ascii_case(name)) {
                    return Some(slot.list);
                }
            }
            at += 1;
        }
    }
}

const fn insert(lists: &[&str], slots: &mut [Slot], list: usize, start: usize, end: usize) {
    assert!(end - start <= NAME_BYTES_MAX && start <= u16::MAX as usize);
    let name = lists[list].as_bytes().split_at(end).0.split_at(start).1;
    let hash = hash(name);
    let mut at = place(hash) & (slots.len() - 1);
    while slots[at].len != 0 {
        let other = slots[at];
        let known = lists[other.list as usize].as_bytes().split_at(other.start as usize).1;
        assert!(!same(known.split_at(other.len as usize).0, name), "a name stands twice");
        at = (at + 1) & (slots.len() - 1);
    }
    slots[at] = Slot { list: list as u8, len: (end - start) as u8, start: start as u16, tag: tag(hash) };
}

const fn same(a: &[u8], b: &[u8]) -> bool {
    if a.len() != b.len() {
        return false;
    }
    let mut i = 0;
    while i < a.len() {
        if !a[i].eq_ignore_ascii_case(&b[i]) {
            return false;
        }
        i += 1;
    }
    true
}

/// Five bytes and the length tell most names apart, at the price of one multiplication.
#[inline]
const fn hash(name: &[u8]) -> u32 {
    let len = name.len();
    let first = name[0] as u64;
    let second = name[(len > 1) as usize] as u64;
    let middle = name[len / 2] as u64;
    let before_last = name[len.saturating_sub(2)] as u64;
    let last = name[len - 1] as u64;
    let bytes = first | second << 8 | middle << 16 | before_last << 24 | last << 32;
    // Letters in lower case; what becomes of other bytes does not matter.
    let folded = bytes | 0x20_2020_2020 | (len as u64) << 40;
    (folded.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as u32
}

const fn tag(hash: u32) -> u16 {
    hash as u16
}

/// Where to look first. The high bits of a product are its best ones.
const fn place(hash: u32) -> usize {
    (hash >> 16) as usize
}
