//! Takes one statement on its way: where it goes, the connection it gets, what goes out in front of it, its reply, its
//! end.

pub(crate) mod acquire;
pub(crate) mod beginning;
pub(crate) mod carried;
pub(crate) mod commit_outcome;
pub(crate) mod completion_type;
pub(crate) mod connection_lost;
pub(crate) mod counting;
pub(crate) mod cursors;
pub(crate) mod deadlock;
pub(crate) mod defaults;
pub(crate) mod detour;
pub(crate) mod effects;
pub(crate) mod freshness;
pub(crate) mod gtids;
pub(crate) mod kill;
pub(crate) mod lease;
pub(crate) mod local_infile;
pub(crate) mod login_schema;
pub(crate) mod long_data;
pub(crate) mod own_statements;
pub(crate) mod prefix;
pub(crate) mod prepare_connection;
pub(crate) mod read_only;
pub(crate) mod rejected;
pub(crate) mod relay;
pub(crate) mod replay;
pub(crate) mod route;
pub(crate) mod session_affinity;
pub(crate) mod session_track;
pub(crate) mod settling;
pub(crate) mod statement_end;
pub(crate) mod transaction_logging;
pub(crate) mod upload;
pub(crate) mod waiting;
pub(crate) mod write_lease;
