//! Caches decisions: for the same session facts, flag and digest they are the same again, unless a rule looked at the
//! statement itself.

use foldhash::HashMap;

use crate::Decision;

/// Entries, and bytes of digest texts, that one worker remembers. When they are reached all is forgotten: the
/// statements in use are there again at once.
const ENTRIES_MAX: usize = 8192;
const TEXT_BYTES_MAX: usize = 4 << 20;

/// Decisions by session facts, flag and digest.
#[derive(Debug, Default)]
pub(crate) struct Cache {
    entries: HashMap<Key, Entry>,
    text_bytes: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    pub scope: u32,
    pub flag_in: u32,
    pub digest: u64,
}

#[derive(Debug)]
pub(crate) struct Entry {
    /// The hash has no secret in it: somebody may look for another text of the same hash.
    digest_text: Box<[u8]>,
    pub decision: Decision,
    /// Positions of the rules that matched.
    pub matched: Box<[u16]>,
}

impl Cache {
    pub(crate) fn find(&self, key: Key, digest_text: &[u8]) -> Option<&Entry> {
        self.entries.get(&key).filter(|entry| *entry.digest_text == *digest_text)
    }

    pub(crate) fn remember(&mut self, key: Key, digest_text: &[u8], decision: Decision, matched: &[u16]) {
        if self.entries.len() >= ENTRIES_MAX || self.text_bytes + digest_text.len() > TEXT_BYTES_MAX {
            self.clear();
        }
        self.text_bytes += digest_text.len();
        let entry = Entry { digest_text: digest_text.into(), decision, matched: matched.into() };
        if let Some(before) = self.entries.insert(key, entry) {
            self.text_bytes -= before.digest_text.len();
        }
    }

    pub(crate) fn clear(&mut self) {
        self.entries.clear();
        self.text_bytes = 0;
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }
}
