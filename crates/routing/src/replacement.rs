//! Replaces a match by text with `\0` to `\9`.

/// A parsed replace_pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Replacement(Vec<Part>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Text(Vec<u8>),
    /// 0: the whole match.
    Group(usize),
}

/// Why a replace_pattern is wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ReplacementFault {
    #[error("a backslash must be followed by a digit or another backslash")]
    Escape,
    #[error("\\{group} means a group that match_pattern does not have (it has {groups})")]
    Group { group: usize, groups: usize },
}

impl Replacement {
    /// Reads it for a pattern with so many groups.
    pub(crate) fn parse(text: &str, groups: usize) -> Result<Self, ReplacementFault> {
        let mut parts = Vec::new();
        let mut literal = Vec::new();
        let mut bytes = text.bytes();
        while let Some(byte) = bytes.next() {
            if byte != b'\\' {
                literal.push(byte);
                continue;
            }
            match bytes.next() {
                Some(b'\\') => literal.push(b'\\'),
                Some(digit @ b'0'..=b'9') => {
                    let group = usize::from(digit - b'0');
                    if group > groups {
                        return Err(ReplacementFault::Group { group, groups });
                    }
                    if !literal.is_empty() {
                        parts.push(Part::Text(std::mem::take(&mut literal)));
                    }
                    parts.push(Part::Group(group));
                }
                _ => return Err(ReplacementFault::Escape),
            }
        }
        if !literal.is_empty() {
            parts.push(Part::Text(literal));
        }
        Ok(Self(parts))
    }

    /// Appends what stands for a match with these groups.
    pub(crate) fn put<'t>(&self, group: impl Fn(usize) -> &'t [u8], out: &mut Vec<u8>) {
        for part in &self.0 {
            match part {
                Part::Text(text) => out.extend_from_slice(text),
                Part::Group(number) => out.extend_from_slice(group(*number)),
            }
        }
    }
}
