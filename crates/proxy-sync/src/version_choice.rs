//! Chooses which of several configurations counts; pure.

use std::collections::HashMap;

use weir_config::ClusterModule;
use weir_store::{Module, Version};

/// A module to be fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Order {
    pub(crate) module: Module,
    /// From which of the others.
    pub(crate) from: usize,
    /// When it was made.
    pub(crate) epoch: u64,
    /// Which one it is.
    pub(crate) checksum: u64,
}

/// The number of looks in a row at which each module differed.
#[derive(Debug, Default)]
pub(crate) struct VersionChoice {
    differs: HashMap<Module, u32>,
    /// Configurations that can't be taken here.
    given_up: HashMap<Module, u64>,
}

impl VersionChoice {
    /// What to fetch, and for which modules the same configuration is known elsewhere with a later epoch. `others` are
    /// those who have answered; who has not has no versions.
    pub(crate) fn choose(
        &mut self,
        own: &[Version],
        others: &[&[Version]],
        settings: &[ClusterModule],
    ) -> (Vec<Order>, Vec<(Module, u64)>) {
        let (mut orders, mut same) = (Vec::new(), Vec::new());
        for own in own {
            let module = own.module;
            let Some(setting) = settings.iter().find(|setting| setting.name == module.name()) else {
                continue;
            };
            if setting.diffs_before_sync == 0 || !setting.has_checksum {
                continue;
            }
            let seen = others.iter().enumerate().flat_map(|(from, versions)| {
                let of_module =
                    versions.iter().filter(|version| version.module == module && version.epoch > 0);
                of_module.map(move |version| (rank(version), from))
            });
            let Some(((epoch, checksum), from)) = seen.max_by_key(|(rank, _)| *rank) else { continue };
            if (epoch, checksum) <= rank(own) || self.given_up.get(&module) == Some(&checksum) {
                self.differs.remove(&module);
            } else if checksum == own.checksum {
                self.differs.remove(&module);
                same.push((module, epoch));
            } else {
                let times = self.differs.entry(module).or_insert(0);
                *times = times.saturating_add(1);
                if *times >= setting.diffs_before_sync {
                    orders.push(Order { module, from, epoch, checksum });
                }
            }
        }
        (orders, same)
    }

    /// This configuration is not asked for again.
    pub(crate) fn give_up(&mut self, module: Module, checksum: u64) {
        self.given_up.insert(module, checksum);
    }

    /// How often in a row a module was seen to differ.
    pub(crate) fn differs(&self, module: Module) -> u32 {
        self.differs.get(&module).copied().unwrap_or(0)
    }
}

/// The higher one wins, on every proxy the same.
fn rank(version: &Version) -> (u64, u64) {
    (version.epoch, version.checksum)
}

#[cfg(test)]
mod tests {
    use weir_config::ClusterVariables;

    use super::*;

    fn users(epoch: u64, checksum: u64) -> Vec<Version> {
        vec![Version { module: Module::MysqlUsers, version: 1, epoch, checksum }]
    }

    /// What one look after the other orders, with the defaults: the third difference in a row is followed.
    fn looks(own: &[Version], others: &[&[Version]], times: usize) -> (Vec<Order>, Vec<(Module, u64)>) {
        let settings = ClusterVariables::default().modules;
        let mut versions = VersionChoice::default();
        for _ in 1..times {
            assert_eq!(versions.choose(own, others, &settings).0, []);
        }
        versions.choose(own, others, &settings)
    }

    fn order(from: usize, epoch: u64, checksum: u64) -> Vec<Order> {
        vec![Order { module: Module::MysqlUsers, from, epoch, checksum }]
    }

    #[test]
    fn the_latest_wins_after_as_many_differences_as_are_wanted() {
        let (a, b, c) = (users(20, 2), users(30, 3), users(25, 9));
        assert_eq!(looks(&users(10, 1), &[&a, &b, &c], 3).0, order(1, 30, 3));
        assert_eq!(looks(&users(31, 1), &[&a, &b, &c], 3).0, []);
    }

    #[test]
    fn of_two_with_the_same_epoch_one_wins_everywhere() {
        let (low, high) = (users(10, 1), users(10, 2));
        assert_eq!(looks(&low, &[&high], 3).0, order(0, 10, 2));
        assert_eq!(looks(&high, &[&low], 3).0, []);
    }

    #[test]
    fn what_was_never_loaded_is_not_fetched_and_gives_way() {
        assert_eq!(looks(&users(10, 1), &[&users(0, 9)], 3).0, []);
        assert_eq!(looks(&users(0, 1), &[&users(0, 9)], 3).0, []);
        assert_eq!(looks(&users(0, 9), &[&users(10, 1)], 3).0, order(0, 10, 1));
    }

    #[test]
    fn who_does_not_answer_has_no_say() {
        assert_eq!(looks(&users(10, 1), &[&[], &[]], 3), (Vec::new(), Vec::new()));
    }

    #[test]
    fn the_same_with_a_later_epoch_is_only_noted() {
        assert_eq!(looks(&users(10, 1), &[&users(20, 1)], 1), (Vec::new(), vec![(Module::MysqlUsers, 20)]));
    }

    #[test]
    fn a_difference_that_ends_is_forgotten() {
        let settings = ClusterVariables::default().modules;
        let mut versions = VersionChoice::default();
        let (own, later, same) = (users(10, 1), users(20, 2), users(10, 1));
        for _ in 0..4 {
            versions.choose(&own, &[&later], &settings);
            versions.choose(&own, &[&later], &settings);
            assert_eq!(versions.differs(Module::MysqlUsers), 2);
            assert_eq!(versions.choose(&own, &[&same], &settings).0, []);
            assert_eq!(versions.differs(Module::MysqlUsers), 0);
        }
    }

    #[test]
    fn modules_that_do_not_follow_stay_as_they_are() {
        let mut settings = ClusterVariables::default().modules;
        settings.iter_mut().for_each(|module| module.diffs_before_sync = 0);
        let mut versions = VersionChoice::default();
        assert_eq!(versions.choose(&users(10, 1), &[&users(20, 2)], &settings), (Vec::new(), Vec::new()));
        settings.iter_mut().for_each(|module| module.diffs_before_sync = 1);
        assert_eq!(versions.choose(&users(10, 1), &[&users(20, 2)], &settings).0, order(0, 20, 2));
        versions.give_up(Module::MysqlUsers, 2);
        assert_eq!(versions.choose(&users(10, 1), &[&users(20, 2)], &settings).0, []);
        assert_eq!(versions.choose(&users(10, 1), &[&users(30, 3)], &settings).0, order(0, 30, 3));
    }
}
