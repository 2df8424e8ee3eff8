//! Tests servers to which connections fail, or whose pings take too long.

use std::time::Duration;

use super::*;

impl World {
    fn fail(&mut self, index: usize, times: u32) {
        let (now, policy) = (self.now, self.policy.clone());
        let seen = self.seen.iter_mut().find(|seen| seen.endpoint == node(index)).expect("probed");
        (0..times).for_each(|_| seen.connects.failed(now, "refused", &policy));
    }

    fn accept(&mut self, index: usize) {
        let now = self.now;
        let seen = self.seen.iter_mut().find(|seen| seen.endpoint == node(index)).expect("probed");
        seen.connects.accepted(now);
    }

    fn ping(&mut self, index: usize, took_ms: u64, times: u32) {
        let at = self.seen.iter().position(|seen| seen.endpoint == node(index)).expect("probed");
        for _ in 0..times {
            self.seen[at] = self.seen[at].clone().with_ping(Duration::from_millis(took_ms));
        }
    }

    /// The status of all three in a hostgroup.
    fn statuses(&mut self, hostgroup: u32) -> Vec<&'static str> {
        self.decide();
        let place = |index| {
            self.roles.hostgroup(hostgroup).iter().find(|place: &&Place| place.endpoint == node(index))
        };
        (0..3).map(|index| place(index).map_or("", |place| place.status.word())).collect()
    }
}

/// All three in the plain hostgroup 7.
fn plain() -> World {
    let mut world = World::new(Policy::default());
    world.rows = (0..3).map(|index| row(index, 7, 1)).collect();
    world
}

#[test]
fn enough_failures_within_a_second_shun() {
    let mut world = plain();
    world.fail(0, 4);
    world.pass(1000);
    world.fail(0, 4);
    assert_eq!(world.statuses(7), ["ONLINE"; 3]);
    world.pass(999);
    world.fail(0, 1);
    assert_eq!(world.statuses(7), ["SHUNNED", "ONLINE", "ONLINE"]);
    let place = &world.roles.hostgroup(7)[0];
    assert!(place.to_string().contains("5 connections failed, the last: refused (SHUNNED)"), "{place}");
}

#[test]
fn it_comes_back_after_its_time_and_an_own_connection_of_the_monitor() {
    let mut world = plain();
    world.fail(0, 5);
    world.accept(0);
    world.pass(8_999);
    assert_eq!(world.statuses(7)[0], "SHUNNED", "too soon");
    world.pass(1);
    assert_eq!(world.statuses(7)[0], "ONLINE");

    let mut world = plain();
    world.fail(0, 5);
    world.pass(20_000);
    assert_eq!(world.statuses(7)[0], "SHUNNED", "nobody has seen it take a connection");
    world.accept(0);
    assert_eq!(world.statuses(7)[0], "ONLINE");
    // Old failures do not count for the next time.
    world.fail(0, 4);
    assert_eq!(world.statuses(7)[0], "ONLINE");
    world.fail(0, 1);
    assert_eq!(world.statuses(7)[0], "SHUNNED");
}

#[test]
fn a_failure_while_it_is_shunned_begins_the_time_anew() {
    let mut world = plain();
    world.fail(0, 5);
    world.accept(0);
    world.pass(8_000);
    world.fail(0, 1);
    world.pass(5_000);
    world.accept(0);
    assert_eq!(world.statuses(7)[0], "SHUNNED");
    world.pass(4_000);
    assert_eq!(world.statuses(7)[0], "ONLINE");
}

#[test]
fn where_all_are_shunned_the_first_that_takes_a_connection_is_back() {
    let mut world = plain();
    (0..3).for_each(|index| world.fail(index, 5));
    assert_eq!(world.statuses(7), ["SHUNNED"; 3]);
    world.pass(100);
    world.accept(1);
    assert_eq!(world.statuses(7), ["SHUNNED", "ONLINE", "SHUNNED"]);
    world.fail(1, 1);
    assert_eq!(world.statuses(7), ["SHUNNED"; 3], "not for its own clients");
}

#[test]
fn a_shunned_writer_keeps_its_role() {
    let mut world = World::new(policy(WriterReads::No));
    world.fail(0, 50);
    world.fail(1, 50);
    assert_eq!(world.statuses(100), ["SHUNNED", "", ""]);
    assert_eq!(world.statuses(101), ["", "SHUNNED", "ONLINE"]);
    assert_eq!(world.writer(), Some(0), "no client can force a failover");
    assert!(world.roles.groups[0].hold.is_none());
}

#[test]
fn shunning_does_not_hide_what_the_user_or_the_monitor_says() {
    let mut world = plain();
    (0..3).for_each(|index| world.fail(index, 5));
    world.rows[0].wish = Wish::OfflineSoft;
    world.see(1, Err(refused()));
    assert_eq!(world.statuses(7), ["OFFLINE_SOFT", "SHUNNED", "SHUNNED"]);
    world.accept(1);
    assert_eq!(world.statuses(7)[1], "SHUNNED", "it is not there");
}

#[test]
fn a_slow_server_stays_online_and_is_marked() {
    let mut world = plain();
    world.rows[0].latency_max_us = 50_000;
    world.rows[1].latency_max_us = 50_000;
    world.ping(0, 60, 1);
    world.ping(1, 40, 1);
    world.ping(2, 60, 1);
    assert_eq!(world.statuses(7), ["ONLINE"; 3]);
    let troubles = |world: &World| -> Vec<bool> {
        world.roles.hostgroup(7).iter().map(|place| place.trouble.is_some()).collect()
    };
    assert_eq!(troubles(&world), [true, false, false], "the last one has no limit");
    assert!(world.roles.hostgroup(7)[0].to_string().ends_with("but a ping takes 60 ms, more than 50"));
    // One slow ping among fast ones is no reason.
    world.ping(1, 65, 1);
    world.ping(0, 1, 4);
    world.decide();
    assert_eq!(troubles(&world), [false; 3]);
}

#[test]
fn in_a_cluster_the_limit_goes_with_the_server() {
    let mut world = World::new(policy(WriterReads::No));
    world.rows[0].latency_max_us = 20_000;
    world.rows[2].latency_max_us = 20_000;
    (0..2).for_each(|index| world.ping(index, 30, 1));
    world.decide();
    let slow =
        |hostgroup| world.roles.hostgroup(hostgroup).iter().filter(|place| place.trouble.is_some()).count();
    assert_eq!((slow(100), slow(101)), (1, 1));
}
