//! Asks a server for its accounts.

use weir_client::{Connection, Error, Options, QueryResult};
use weir_session::accounts::AccountList;

use crate::{mariadb, mysql};

/// More accounts are not followed.
const ACCOUNTS_MAX: usize = 500_000;
/// The server's own might keep one state of the tables in sight for ever, cut results, or fill names up with spaces.
const OWN_SETTINGS: &str = "SET SESSION autocommit = 1, sql_select_limit = DEFAULT, sql_mode = ''";
/// So often accounts are read that have not changed, in seconds: passwords grow old.
const READ_AGAIN_S: i64 = 3600;

/// Why the accounts are not known.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The server does not answer, or does not let the account look.
    #[error(transparent)]
    Client(#[from] Error),
    /// It answers what is not understood.
    #[error("the answer to the question for accounts has no {0}")]
    Missing(&'static str),
    /// There are too many.
    #[error("there are {0} accounts; at most {ACCOUNTS_MAX} are followed")]
    TooMany(usize),
}

/// What must be the same if nothing has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Fingerprint {
    count: usize,
    rows: String,
    default_lifetime_days: i64,
    hour: i64,
}

/// A connection to a server, and what it has told.
pub(crate) struct AccountReader {
    connection: Connection,
    is_mariadb: bool,
}

/// What was read, to be compared with what another server tells.
#[derive(Clone, Debug, Default)]
pub(crate) struct LastRead(Option<Fingerprint>);

impl AccountReader {
    pub(crate) fn connect(options: &Options) -> Result<Self, ReadError> {
        let rows_max = ACCOUNTS_MAX + 1;
        let mut connection = Connection::connect(&Options { rows_max, ..options.clone() })?;
        connection.query(OWN_SETTINGS)?;
        let is_mariadb = connection.server_version().contains("MariaDB");
        Ok(Self { connection, is_mariadb })
    }

    /// The accounts, if they are others than those of `last`, which is brought up to date.
    pub(crate) fn read_if_changed(&mut self, last: &mut LastRead) -> Result<Option<AccountList>, ReadError> {
        let question = if self.is_mariadb { mariadb::FINGERPRINT } else { mysql::FINGERPRINT };
        let (fingerprint, now) = fingerprint(&self.connection.query(question)?)?;
        if last.0.as_ref() == Some(&fingerprint) {
            return Ok(None);
        }
        if fingerprint.count > ACCOUNTS_MAX {
            return Err(ReadError::TooMany(fingerprint.count));
        }
        let lifetime = fingerprint.default_lifetime_days;
        let rows = self.connection.query(if self.is_mariadb { mariadb::ROWS } else { mysql::ROWS })?;
        let list = if self.is_mariadb {
            let field = |row: usize, column: usize| rows.rows.get(row)?.get(column)?.as_deref();
            let account = |row| {
                let text = field(row, 2).unwrap_or_default();
                mariadb::account(rows.text(row, 0)?, field(row, 1)?, text, lifetime, now)
            };
            AccountList::new((0..rows.rows.len()).filter_map(account))
        } else {
            let account = |row| mysql::account(&rows, row, lifetime, now);
            AccountList::new((0..rows.rows.len()).filter_map(account))
        };
        // Else somebody has made or dropped one in between: they are read again.
        last.0 = (rows.rows.len() == fingerprint.count).then_some(fingerprint);
        Ok(Some(list))
    }
}

fn fingerprint(answer: &QueryResult) -> Result<(Fingerprint, i64), ReadError> {
    let number = |column: usize, name| {
        let text = answer.text(0, column).ok_or(ReadError::Missing(name))?;
        text.split('.').next().and_then(|whole| whole.parse::<i64>().ok()).ok_or(ReadError::Missing(name))
    };
    let now = number(3, "time")?;
    let fingerprint = Fingerprint {
        count: usize::try_from(number(0, "count")?).map_err(|_| ReadError::Missing("count"))?,
        rows: answer.text(0, 1).ok_or(ReadError::Missing("fingerprint"))?.to_owned(),
        default_lifetime_days: number(2, "lifetime of passwords")?,
        hour: now / READ_AGAIN_S,
    };
    Ok((fingerprint, now))
}
