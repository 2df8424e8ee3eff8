//! Reads the rows of clusters.

use weir_topology::ReadOnlyCheck;

use crate::field::fields::{Fields, Row};
use crate::model::clusters::{ClusterHostgroup, ReplicationHostgroup, WriterIsAlsoReader};
use crate::read::servers::required_hostgroup;
use crate::report::error::Report;
use crate::value::limits::COMMENT_CHARS_MAX;
use crate::value::suggest::unknown_word;

pub(crate) fn cluster_hostgroup(row: &Row<'_>, report: &mut Report) -> Option<ClusterHostgroup> {
    let mut f = Fields::of(row, report);
    let writer = required_hostgroup(&mut f, "writer_hostgroup");
    let backup_writer = required_hostgroup(&mut f, "backup_writer_hostgroup");
    let reader = required_hostgroup(&mut f, "reader_hostgroup");
    let offline = required_hostgroup(&mut f, "offline_hostgroup");
    let active = f.flag("active");
    let max_writers = f.number("max_writers");
    let writer_is_also_reader = match f.item("writer_is_also_reader").map(|item| (item, item.as_integer())) {
        None | Some((_, Some(0))) => WriterIsAlsoReader::No,
        Some((_, Some(1))) => WriterIsAlsoReader::Yes,
        Some((_, Some(2))) => WriterIsAlsoReader::BackupWriters,
        Some((item, _)) => {
            f.refuse("writer_is_also_reader", format!("{} is not 0, 1 or 2", item.describe()));
            WriterIsAlsoReader::No
        }
    };
    let max_transactions_behind = f.number("max_transactions_behind");
    let comment = f.text("comment", "", COMMENT_CHARS_MAX);
    f.finish_row();
    Some(ClusterHostgroup {
        writer_hostgroup: writer?,
        backup_writer_hostgroup: backup_writer?,
        reader_hostgroup: reader?,
        offline_hostgroup: offline?,
        active,
        max_writers,
        writer_is_also_reader,
        max_transactions_behind,
        comment,
    })
}

pub(crate) fn replication_hostgroup(row: &Row<'_>, report: &mut Report) -> Option<ReplicationHostgroup> {
    const WORDS: [&str; 5] = [
        "read_only",
        "innodb_read_only",
        "super_read_only",
        "read_only&innodb_read_only",
        "read_only|innodb_read_only",
    ];
    let mut f = Fields::of(row, report);
    let writer = required_hostgroup(&mut f, "writer_hostgroup");
    let reader = required_hostgroup(&mut f, "reader_hostgroup");
    let check_type = match f.optional_text("check_type", 64).as_deref() {
        None | Some("read_only") => ReadOnlyCheck::ReadOnly,
        Some("innodb_read_only") => ReadOnlyCheck::InnodbReadOnly,
        Some("super_read_only") => ReadOnlyCheck::SuperReadOnly,
        Some("read_only&innodb_read_only") => ReadOnlyCheck::Both,
        Some("read_only|innodb_read_only") => ReadOnlyCheck::Either,
        Some(word) => {
            f.refuse("check_type", unknown_word(word, &WORDS));
            ReadOnlyCheck::ReadOnly
        }
    };
    let comment = f.text("comment", "", COMMENT_CHARS_MAX);
    f.finish_row();
    Some(ReplicationHostgroup { writer_hostgroup: writer?, reader_hostgroup: reader?, check_type, comment })
}
