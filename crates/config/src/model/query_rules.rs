//! Names the keys of query rules and fast routes, whose rows the router declares.

use weir_routing::{FastRoute, QueryRule};

use crate::report::place::Keyed;
use crate::value::rows::TableRow;

impl Keyed for QueryRule {
    fn table(&self) -> &'static str {
        "mysql_query_rules"
    }

    fn key(&self) -> TableRow {
        [("rule_id".into(), i64::from(self.rule_id).into())].into()
    }
}

impl Keyed for FastRoute {
    fn table(&self) -> &'static str {
        "mysql_query_rules_fast_routing"
    }

    fn key(&self) -> TableRow {
        let Self { username, schemaname, flag_in, .. } = self;
        [
            ("username".into(), username.clone().into()),
            ("schemaname".into(), schemaname.clone().into()),
            ("flagIN".into(), i64::from(*flag_in).into()),
        ]
        .into()
    }
}
