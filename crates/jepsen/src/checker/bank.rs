//! Checks accounts between which money moves: every read of all of them has the same total, and no account owes.

use super::anomaly::{AnomalyKind, Class, Findings};
use super::history::{History, Op, Outcome, Transaction};

/// Judges every read of all accounts, whose total is `total`.
pub fn check(history: &History, total: i64) -> Findings {
    let mut findings = Findings::default();
    let transactions = history.transactions();
    for transaction in transactions.iter().filter(|t| t.outcome == Outcome::Ok) {
        for op in &transaction.ops {
            if let Op::Balances { found: Some(balances) } = op {
                judge(transaction, balances, total, &mut findings);
            }
        }
    }
    findings
}

fn judge(transaction: &Transaction, balances: &[i64], total: i64, findings: &mut Findings) {
    let mut add = |kind, words| findings.add(Class::of(kind), None, vec![transaction.id], words);
    let sum: i64 = balances.iter().sum();
    if sum != total {
        add(AnomalyKind::WrongTotal, format!("{balances:?} are {sum} instead of {total}"));
    }
    if let Some(owed) = balances.iter().find(|balance| **balance < 0) {
        add(AnomalyKind::NegativeBalance, format!("{owed} in {balances:?}"));
    }
}

#[cfg(test)]
mod tests {
    use super::super::history::Kind;
    use super::*;

    #[test]
    fn totals_change_by_read_skew_and_balances_are_no_debts() {
        let names = |balances: &[i64]| {
            let mut history = History::default();
            history.push(1, 0, 1, Kind::Ok, vec![Op::Balances { found: Some(balances.to_vec()) }]);
            check(&history, 20).names()
        };
        assert!(names(&[10, 10]).is_empty() && names(&[0, 20]).is_empty());
        // One account before a transfer of 5 and one after it.
        assert_eq!(names(&[10, 15]), ["wrong-total"]);
        assert_eq!(names(&[-1, 21]), ["negative-balance"]);
    }
}
