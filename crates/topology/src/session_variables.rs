//! Lists the variables with which sessions of a server begin, as the server itself knows them.

/// Between two values in an answer to [`SessionVariables::session_question`]: no value of a variable has it.
pub const SEPARATOR: u8 = 1;
/// Stands for NULL in such an answer.
pub const NULL: u8 = 2;

/// The variables of a server that have a global value, which is where sessions begin, and that any session may set to
/// another one. Learnt from the server: every version has others. Beside them those that a session has too, and not
/// everybody may set: from a change of theirs on, connections have to be logged in anew.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionVariables {
    names: Box<[Box<str>]>,
    watched: Box<[Box<str>]>,
    question: Box<str>,
    global_question: Box<str>,
}

impl SessionVariables {
    /// These names, in lower case, and what is only watched; what is no plain name is left out.
    pub fn new<'n>(
        names: impl IntoIterator<Item = &'n str>,
        watched: impl IntoIterator<Item = &'n str>,
    ) -> Self {
        let (names, watched) = (plain(names), plain(watched));
        let (question, global_question) =
            (question("session", names.iter()), question("global", names.iter().chain(&watched)));
        Self { names, watched, question, global_question }
    }

    /// The names, in the order of the values in an answer.
    pub fn names(&self) -> &[Box<str>] {
        &self.names
    }

    /// The names in the order of the values in an answer to [`Self::global_question`].
    pub fn global_names(&self) -> impl Iterator<Item = &str> {
        self.names.iter().chain(&self.watched).map(|name| &**name)
    }

    /// Asks for the values that a session has: one row of one column. In it `1` if connections run what the server's
    /// own `init_connect` says, else `0`, and then the values, with [`SEPARATOR`] in front of each.
    ///
    /// One text instead of a column for each: the server would send more of the columns' names than of their values.
    pub fn session_question(&self) -> &str {
        &self.question
    }

    /// Asks for the values that sessions begin with from now on, and for those that are watched, in the same form.
    pub fn global_question(&self) -> &str {
        &self.global_question
    }
}

fn plain<'n>(names: impl IntoIterator<Item = &'n str>) -> Box<[Box<str>]> {
    let is_plain = |name: &&str| {
        !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    };
    names.into_iter().filter(is_plain).map(Box::from).collect()
}

fn question<'n>(scope: &str, names: impl Iterator<Item = &'n Box<str>>) -> Box<str> {
    let mut text =
        format!("SELECT CONCAT_WS(CHAR({SEPARATOR}), IF(IFNULL(@@global.init_connect, '') = '', '0', '1')");
    for name in names {
        text.push_str(", IFNULL(@@");
        text.push_str(scope);
        text.push('.');
        text.push_str(name);
        text.push_str(&format!(", CHAR({NULL}))"));
    }
    text.push(')');
    text.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_name_plain_names_only() {
        let variables =
            SessionVariables::new(["sql_mode", "a b", "hot.key_buffer_size", ""], ["wsrep_on", "'"]);
        assert_eq!(variables.names(), [Box::from("sql_mode")]);
        assert_eq!(
            variables.session_question(),
            "SELECT CONCAT_WS(CHAR(1), IF(IFNULL(@@global.init_connect, '') = '', '0', '1'), \
             IFNULL(@@session.sql_mode, CHAR(2)))"
        );
        assert!(variables.global_question().contains("@@global.sql_mode"));
        assert!(variables.global_question().contains("@@global.wsrep_on"));
        assert_eq!(variables.global_names().collect::<Vec<_>>(), ["sql_mode", "wsrep_on"]);
    }
}
