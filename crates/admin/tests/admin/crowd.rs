//! Many sessions share answers.

use weir_client::Connection;

use super::{Rig, query};

#[test]
fn in_a_crowd_nobody_is_given_what_is_older_than_a_change() {
    let rig = Rig::start();
    let mut crowd: Vec<Connection> = (0..20).map(|_| rig.admin()).collect();
    let read = |admin: &mut Connection| -> u32 {
        query(admin, "SELECT Variable_Value FROM stats_mysql_global")[0][0].parse().unwrap()
    };
    for change in
        ["LOAD MYSQL USERS TO RUNTIME", "UPDATE mysql_users SET active = 0", "TRUNCATE stats_mysql_errors"]
    {
        let before = crowd.iter_mut().map(read).max().unwrap();
        query(&mut crowd[0], change);
        for admin in &mut crowd {
            assert!(read(admin) > before, "{change}");
        }
    }
}
