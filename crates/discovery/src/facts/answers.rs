//! Holds the rows with which a server has answered, before anything is made of them.

/// What a server has answered, statement by statement; empty where it was not asked or has refused.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answers {
    /// The version in its greeting.
    pub greeting: String,
    /// Rows of SHOW GLOBAL VARIABLES.
    pub variables: Vec<(String, String)>,
    /// Rows of SHOW GLOBAL STATUS, of Galera nodes.
    pub status: Vec<(String, String)>,
    /// `performance_schema.replication_group_members`
    pub members: Vec<NamedRow>,
    /// SHOW REPLICA STATUS, SHOW ALL SLAVES STATUS.
    pub sources: Vec<NamedRow>,
    /// SHOW REPLICAS, SHOW SLAVE HOSTS.
    pub replicas: Vec<NamedRow>,
    /// `HOST` of the threads that send the binary log.
    pub dump_hosts: Vec<String>,
    /// USER()
    pub user: String,
    /// CURRENT_USER()
    pub current_user: String,
    /// SHOW GRANTS
    pub grants: Vec<String>,
    /// What it did not answer.
    pub refused: Vec<Refused>,
}

/// A question that a server has not answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The statement.
    pub statement: &'static str,
    /// What can't be known without.
    pub lost: &'static str,
    /// The server's words.
    pub cause: String,
}

/// A row with the headings of its columns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamedRow(pub Vec<(String, Option<String>)>);

impl Answers {
    /// A variable's value.
    pub fn variable(&self, name: &str) -> Option<&str> {
        let is_wanted = |(found, _): &&(String, String)| found.eq_ignore_ascii_case(name);
        self.variables.iter().find(is_wanted).map(|(_, value)| value.trim())
    }
}

impl NamedRow {
    /// A column's text; empty if it is NULL or not there.
    pub fn text(&self, name: &str) -> &str {
        self.first_text(&[name])
    }

    /// That of the first of these columns that is there: servers have renamed some.
    pub fn first_text(&self, names: &[&str]) -> &str {
        let of = |name: &&str| self.0.iter().find(|(found, _)| found.eq_ignore_ascii_case(name));
        names.iter().find_map(of).and_then(|(_, value)| value.as_deref()).unwrap_or_default().trim()
    }

    /// Headings and values.
    pub fn columns(&self) -> impl Iterator<Item = (&str, Option<&str>)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_deref()))
    }
}
