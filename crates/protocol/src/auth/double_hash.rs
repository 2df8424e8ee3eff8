//! Answers and checks challenges with a password that is hashed twice: what `mysql_native_password` and
//! `caching_sha2_password` have in common. They differ in the hash, and in what is hashed first.
//!
//! A server keeps `H(H(password))` (stage 2). The client answers a scramble with `H(password) XOR mask`, where the mask is
//! a hash of the scramble and stage 2: from the answer whoever knows stage 2 gets stage 1, and with it the means to answer
//! another server's scramble.

use std::fmt;
use std::marker::PhantomData;

use crate::auth::{constant_time_eq, xor};
use crate::handshake::Scramble;

/// A hash of `LEN` bytes, and how a method makes its mask.
pub trait Hash<const LEN: usize> {
    /// The hash of some bytes.
    fn of(bytes: &[u8]) -> [u8; LEN];
    /// What stage 1 is combined with to answer a scramble.
    fn mask(stage2: &[u8; LEN], scramble: &Scramble) -> [u8; LEN];
}

/// `H(password)`: enough to log in.
#[derive(Clone, PartialEq, Eq)]
pub struct Stage1<H, const LEN: usize>([u8; LEN], PhantomData<H>);

impl<H: Hash<LEN>, const LEN: usize> Stage1<H, LEN> {
    /// Hashes a password once.
    pub fn of(password: &[u8]) -> Self {
        Self(H::of(password), PhantomData)
    }

    /// What a server keeps.
    pub fn stage2(&self) -> Stage2<H, LEN> {
        Stage2(H::of(&self.0), PhantomData)
    }

    /// The answer to `scramble`.
    pub fn response(&self, scramble: &Scramble) -> [u8; LEN] {
        xor(&self.0, &H::mask(&self.stage2().0, scramble))
    }
}

impl<H, const LEN: usize> fmt::Debug for Stage1<H, LEN> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HashStage1(..)")
    }
}

/// `H(H(password))`: what a server keeps.
#[derive(Clone, PartialEq, Eq)]
pub struct Stage2<H, const LEN: usize>([u8; LEN], PhantomData<H>);

impl<H: Hash<LEN>, const LEN: usize> Stage2<H, LEN> {
    /// Hashes a password twice.
    pub fn of(password: &[u8]) -> Self {
        Stage1::of(password).stage2()
    }

    /// Takes a hash as a server keeps it.
    pub(super) fn from_bytes(hash: [u8; LEN]) -> Self {
        Self(hash, PhantomData)
    }

    /// Checks a client's answer to `scramble`, and takes the password's stage 1 out of it.
    pub fn verify(&self, response: &[u8], scramble: &Scramble) -> Option<Stage1<H, LEN>> {
        let response: &[u8; LEN] = response.try_into().ok()?;
        let stage1 = Stage1(xor(response, &H::mask(&self.0, scramble)), PhantomData);
        constant_time_eq(&stage1.stage2().0, &self.0).then_some(stage1)
    }

    /// The hash itself.
    pub fn as_bytes(&self) -> &[u8; LEN] {
        &self.0
    }
}

impl<H, const LEN: usize> fmt::Debug for Stage2<H, LEN> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HashStage2(..)")
    }
}

/// The answer to `scramble`, or `None` for the empty password, whose answer is no bytes at all.
pub(super) fn response<H: Hash<LEN>, const LEN: usize>(
    password: &[u8],
    scramble: &Scramble,
) -> Option<[u8; LEN]> {
    (!password.is_empty()).then(|| Stage1::<H, LEN>::of(password).response(scramble))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::auth::{native, sha2};

    fn only_the_right_answer_is_verified<H, const LEN: usize>(
        password: &[u8],
        [scramble, other]: [Scramble; 2],
        flip: usize,
    ) -> Result<(), TestCaseError>
    where
        H: Hash<LEN> + PartialEq,
    {
        let stored = Stage2::<H, LEN>::of(password);
        let mut answer = response::<H, LEN>(password, &scramble).unwrap();
        let stage1 = stored.verify(&answer, &scramble).unwrap();
        prop_assert_eq!(stage1.response(&other), response::<H, LEN>(password, &other).unwrap());
        prop_assert!(stored.verify(&answer, &other).is_none());
        let flip = flip % (8 * LEN);
        answer[flip / 8] ^= 1 << (flip % 8);
        prop_assert!(stored.verify(&answer, &scramble).is_none());
        Ok(())
    }

    proptest! {
        #[test]
        fn the_response_gives_stage_1_to_who_knows_stage_2(password: Vec<u8>, scramble: Scramble,
                                                           other: Scramble, flip: usize) {
            prop_assume!(!password.is_empty() && other != scramble);
            only_the_right_answer_is_verified::<native::Sha1Hash, { native::HASH_LEN }>(&password, [scramble, other], flip)?;
            only_the_right_answer_is_verified::<sha2::Sha256Hash, { sha2::HASH_LEN }>(&password, [scramble, other], flip)?;
        }
    }
}
