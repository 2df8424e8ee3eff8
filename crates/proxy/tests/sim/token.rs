//! Every statement of a client carries a token: whose it is, and what must hold where it runs. The server
//! compares, and echoes it, so that the client knows its own reply.

use std::fmt;

/// The state that a session has set, as far as the model knows states.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Claims {
    pub schema: String,
    pub time_zone: String,
    pub lock_wait: String,
    pub sql_mode: String,
    pub charset: String,
    pub collation: String,
    pub is_autocommit: bool,
    pub in_transaction: bool,
    /// `@x`, empty for NULL.
    pub user_variable: String,
    /// Commit number of the session's last write, which must be visible.
    pub wrote: u64,
}

/// What a statement is to do besides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wishes {
    /// It fails.
    pub fails: bool,
    /// It raises a warning.
    pub warns: bool,
    /// It is sent to the readers although a transaction is open.
    pub leaves: bool,
    /// It takes so many milliseconds.
    pub sleep_ms: u64,
    /// Its result is so many KB longer.
    pub kilobytes: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Token {
    pub client: usize,
    pub number: usize,
    pub claims: Claims,
    /// For an execution: the schema that the statement was prepared in.
    pub prepared_in: Option<String>,
    pub wishes: Wishes,
}

/// What every token begins with.
pub(crate) const MARK: &str = "tok:";

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Claims { schema, time_zone, lock_wait, sql_mode, charset, collation, .. } = &self.claims;
        let (claims, wishes) = (&self.claims, &self.wishes);
        write!(
            f,
            "{MARK}{}:{}|{schema}|{time_zone}|{lock_wait}|{sql_mode}|{charset}|{collation}|{}|{}|{}|{}|{}|{}|{}|{}|{}|{}|.",
            self.client,
            self.number,
            u8::from(claims.is_autocommit),
            u8::from(claims.in_transaction),
            claims.user_variable,
            claims.wrote,
            self.prepared_in.as_deref().unwrap_or("-"),
            u8::from(wishes.fails),
            u8::from(wishes.warns),
            u8::from(wishes.leaves),
            wishes.sleep_ms,
            wishes.kilobytes,
        )
    }
}

impl Token {
    /// The token somewhere in this text.
    pub(crate) fn find(text: &str) -> Option<Self> {
        let start = text.find(MARK)?;
        let end = start + text[start..].find("|.")?;
        let mut fields = text[start + MARK.len()..end].split('|');
        let (client, number) = fields.next()?.split_once(':')?;
        let mut field = || fields.next().map(str::to_owned);
        let flag = |text: String| text == "1";
        let claims = Claims {
            schema: field()?,
            time_zone: field()?,
            lock_wait: field()?,
            sql_mode: field()?,
            charset: field()?,
            collation: field()?,
            is_autocommit: flag(field()?),
            in_transaction: flag(field()?),
            user_variable: field()?,
            wrote: field()?.parse().ok()?,
        };
        let prepared_in = field().filter(|schema| schema != "-");
        let wishes = Wishes {
            fails: flag(field()?),
            warns: flag(field()?),
            leaves: flag(field()?),
            sleep_ms: field()?.parse().ok()?,
            kilobytes: field()?.parse().ok()?,
        };
        Some(Self { client: client.parse().ok()?, number: number.parse().ok()?, claims, prepared_in, wishes })
    }

    /// Who and which, without the claims.
    pub(crate) fn name(&self) -> (usize, usize) {
        (self.client, self.number)
    }
}
