//! Searches histories of transactions for anomalies: the part of `make jepsen` that needs no servers.

pub mod checker;
