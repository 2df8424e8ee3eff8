//! In whatever way a session asks for what its last statement has left, it is told of its own, and never of what
//! another session has left on the connection.

use std::error::Error;

use weir_tests::session::Outcome;
use weir_tests::{Case, CaseResult, Session, ensure};

use super::Trio;
use super::trio::NO_CONNECTION;

/// The cases of this module.
pub(super) fn trials() -> Vec<Case> {
    vec![
        Case::parallel("diagnostics::every_way_to_ask", |env| {
            let node = env.cluster()?.node(1);
            every_way(Trio::new(env)?.with_several()?, &[Way::Immediate, Way::Compound], |sql| {
                Ok(node.root_query(sql).map(drop)?)
            })
        }),
        Case::parallel("diagnostics::every_way_to_ask_at_mysql", |env| {
            let server = env.mysql()?.source();
            every_way(Trio::at_mysql(env)?.with_several()?, &[], |sql| {
                Ok(server.root_query(sql).map(drop)?)
            })
        }),
    ]
}

/// What is asked; behind a semicolon, what shows the answer.
const QUESTIONS: [&str; 12] = [
    "SHOW WARNINGS",
    "SHOW ERRORS",
    "SHOW COUNT(*) WARNINGS",
    "SELECT @@warning_count",
    "SELECT @@error_count + 1",
    "SELECT ROW_COUNT()",
    "SELECT FOUND_ROWS()",
    "SELECT LAST_INSERT_ID()",
    "SET @a = FOUND_ROWS();SELECT @a",
    "SET @a = ROW_COUNT();SELECT @a",
    "GET DIAGNOSTICS @a = NUMBER;SELECT @a",
    "GET DIAGNOSTICS CONDITION 1 @a = MESSAGE_TEXT;SELECT @a",
];

/// What the session has run before, first something that leaves nothing; "": it has just logged in.
const BEFORE: [&str; 6] = [
    "DO 1",
    "",
    "SELECT CAST('mine' AS SIGNED)",
    FAILING,
    "INSERT INTO t (v) VALUES (9), (8)",
    "SELECT SQL_CALC_FOUND_ROWS * FROM t LIMIT 1",
];

/// More than is kept of a command.
const LONG_BYTES: usize = 1 << 20;
/// How often a question is asked anew for which no connection was free.
const ATTEMPTS: usize = 5;
/// One of [`BEFORE`].
const FAILING: &str = "SELECT nothing";
/// What code asks for that finds nothing any more.
const FORGOTTEN: [&str; 5] = ["ROW_COUNT", "WARNINGS", "ERRORS", "_count", "GET"];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// COM_QUERY.
    Text,
    /// With a statement behind it.
    Several,
    /// COM_STMT_PREPARE and COM_STMT_EXECUTE.
    Prepared,
    /// The same, prepared before the session has left anything.
    PreparedBefore,
    /// PREPARE and EXECUTE.
    TextPrepared,
    /// The same, prepared before the session has left anything.
    TextPreparedBefore,
    /// CALL of a procedure that asks.
    Call,
    /// The same in a text that is not kept in memory.
    LongCall,
    /// EXECUTE IMMEDIATE.
    Immediate,
    /// BEGIN NOT ATOMIC.
    Compound,
}

impl Way {
    const EVERYWHERE: [Way; 8] = [
        Way::Text,
        Way::Several,
        Way::Prepared,
        Way::PreparedBefore,
        Way::TextPrepared,
        Way::TextPreparedBefore,
        Way::Call,
        Way::LongCall,
    ];

    /// What the session says first.
    fn begin(self, session: &mut Session, question: &str) -> Result<Asking, Box<dyn Error>> {
        Ok(match self {
            Way::Prepared | Way::PreparedBefore => match session.try_prepare(question)? {
                Ok(prepared) => Asking::Execute(prepared),
                Err(refused) => Asking::Refused(refused),
            },
            Way::TextPrepared | Way::TextPreparedBefore => {
                match session.query(&format!("PREPARE s FROM '{question}'"))?.results.pop() {
                    Some(refused @ Outcome::Err { .. }) => Asking::Refused(refused),
                    _ => Asking::Query("EXECUTE s".to_owned()),
                }
            }
            Way::Text => Asking::Query(question.to_owned()),
            Way::Several => Asking::Query(format!("{question}; SELECT 1")),
            Way::Call | Way::LongCall => {
                let number = QUESTIONS.iter().position(|known| known.split(';').next() == Some(question));
                let padding = if self == Way::LongCall { " ".repeat(LONG_BYTES) } else { String::new() };
                Asking::Query(format!("CALL asked_{}(){padding}", number.ok_or("no such question")?))
            }
            Way::Immediate => Asking::Query(format!("EXECUTE IMMEDIATE '{question}'")),
            Way::Compound => Asking::Query(format!("BEGIN NOT ATOMIC {question}; END")),
        })
    }

    /// Whether Weir does not see the question.
    fn is_hidden(self) -> bool {
        !matches!(self, Way::Text | Way::Several | Way::Prepared | Way::PreparedBefore)
    }

    fn begins_before(self) -> bool {
        matches!(self, Way::PreparedBefore | Way::TextPreparedBefore)
    }
}

enum Asking {
    Query(String),
    Execute(weir_tests::session::Prepared),
    Refused(Outcome),
}

impl Asking {
    fn end(self, session: &mut Session) -> Result<Vec<Outcome>, Box<dyn Error>> {
        Ok(match self {
            Asking::Query(sql) => session.query(&sql)?.results,
            Asking::Execute(prepared) => session.execute(&prepared, &[])?.results,
            Asking::Refused(outcome) => vec![outcome],
        })
    }
}

fn every_way(mut trio: Trio, more: &[Way], root: impl Fn(&str) -> CaseResult) -> CaseResult {
    for schema in trio.schemas.clone() {
        for (number, question) in QUESTIONS.iter().enumerate() {
            let question = question.split(';').next().unwrap_or_default();
            root(&format!("USE {schema}; CREATE PROCEDURE asked_{number}() {question}"))?;
        }
    }
    let mut wrong = Vec::new();
    for way in Way::EVERYWHERE.iter().chain(more) {
        for question in QUESTIONS {
            let mut if_nothing = None;
            for before in BEFORE {
                let [ours, right] = trio.asked_in_time(*way, question, before)?;
                let if_nothing = if_nothing.get_or_insert_with(|| right.clone());
                // Limits that the guide names: another session has used the connection.
                let is_refused = ours.starts_with("error 1105 another session has used the connection")
                    && matches!(way, Way::Several | Way::Prepared | Way::PreparedBefore | Way::Compound);
                let is_forgotten = ours == *if_nothing
                    && match way {
                        // 0 in place of -1.
                        Way::PreparedBefore => before == FAILING && question.contains("ROW_COUNT"),
                        way => way.is_hidden() && FORGOTTEN.iter().any(|word| question.contains(word)),
                    };
                if ours != right && !is_refused && !is_forgotten {
                    wrong.push(format!("{before}; {question}, {way:?}: {ours}\n    straight {right}"));
                }
            }
        }
    }
    ensure!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
    Ok(())
}

impl Trio {
    /// The same as [`Trio::asked`] when the only connection could be had in the short time that there is for it.
    fn asked_in_time(
        &mut self,
        way: Way,
        question: &str,
        before: &str,
    ) -> Result<[String; 2], Box<dyn Error>> {
        let too_late = format!("error {NO_CONNECTION} ");
        for _ in 1..ATTEMPTS {
            match self.asked(way, question, before) {
                Ok([ours, _]) if ours.contains(&too_late) => {}
                // It ends the session, which may not read why while it sends.
                Err(_) if way == Way::LongCall => {}
                told => return told,
            }
        }
        self.asked(way, question, before)
    }

    /// What a session through Weir and one straight at the server are told.
    fn asked(&mut self, way: Way, question: &str, before: &str) -> Result<[String; 2], Box<dyn Error>> {
        let (question, shown_by) = question.split_once(';').unwrap_or((question, ""));
        self.log_in_anew()?;
        // A new session's is what somebody's before it was (MariaDB).
        if question.contains("FOUND_ROWS")
            && let Some(late) = self.run_both("SELECT 1")?
        {
            return Ok([late, String::new()]);
        }
        let mut early = None;
        if way.begins_before() {
            early = Some((way.begin(&mut self.mine, question)?, way.begin(&mut self.reference, question)?));
        }
        self.disturb()?;
        if !before.is_empty() {
            if let Some(late) = self.run_both(before)? {
                return Ok([late, String::new()]);
            }
            self.disturb()?;
        }
        let (ours, right) = match early {
            Some(begun) => begun,
            None => {
                let ours = way.begin(&mut self.mine, question)?;
                self.disturb()?;
                (ours, way.begin(&mut self.reference, question)?)
            }
        };
        let (mut ours, mut right) = (ours.end(&mut self.mine)?, right.end(&mut self.reference)?);
        if !shown_by.is_empty() {
            ours.append(&mut self.mine.query(shown_by)?.results);
            right.append(&mut self.reference.query(shown_by)?.results);
        }
        // MySQL warns of FOUND_ROWS(), for which Weir puts a number.
        let warns = !question.contains("FOUND_ROWS");
        Ok([told(&ours, warns), told(&right, warns)])
    }

    /// What the session under test is told where it gets no connection for a statement that both run.
    fn run_both(&mut self, sql: &str) -> Result<Option<String>, Box<dyn Error>> {
        self.reference.query(sql)?;
        let ours = self.mine.query(sql)?;
        Ok((ours.error() == Some(NO_CONNECTION)).then(|| told(&ours.results, true)))
    }
}

/// What of an answer has to be the same.
fn told(results: &[Outcome], warns: bool) -> String {
    let shown = |warnings| if warns { warnings } else { 0 };
    let told = results.iter().map(|outcome| match outcome {
        Outcome::Ok(done) => format!("OK {} affected, {} warnings", done.affected_rows, shown(done.warnings)),
        Outcome::Rows(rows) => {
            let bytes = rows.rows.iter().map(|row| String::from_utf8_lossy(row).into_owned());
            format!("{:?}, {} warnings", bytes.collect::<Vec<String>>(), shown(rows.end.warnings))
        }
        Outcome::Err { code, message, .. } => format!("error {code} {message}"),
    });
    told.collect::<Vec<String>>().join(" | ")
}
