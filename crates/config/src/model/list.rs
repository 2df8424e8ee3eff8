//! Lists all variables, and finds them by name.

use std::sync::LazyLock;

use crate::field::kind::Group;
use crate::model::admin_variables::AdminVariables;
use crate::model::mysql_variables::MysqlVariables;
use crate::table::unbuilt;
use crate::table::variable::Variable;
use crate::value::suggest::nearest;

/// All variables: ProxySQL's, with effect or without, and Weir's own, by module and name.
pub fn variables() -> &'static [Variable] {
    static ALL: LazyLock<Vec<Variable>> = LazyLock::new(|| {
        let mut all = unbuilt::VARIABLES.to_vec();
        MysqlVariables::declare(&mut all);
        AdminVariables::declare(&mut all);
        all.sort_unstable_by_key(|variable| (variable.module, variable.name));
        all
    });
    &ALL
}

/// The variable of this whole name, such as `mysql-threads`.
pub fn variable(full_name: &str) -> Option<&'static Variable> {
    let (module, name) = full_name.split_once('-')?;
    known(module, name)
}

pub(crate) fn known(module: &str, name: &str) -> Option<&'static Variable> {
    let at = variables().binary_search_by_key(&(module, name), |known| (known.module, known.name)).ok()?;
    variables().get(at)
}

/// Whether the value of a variable or column of this name is a secret: neither shown nor logged.
pub fn is_secret_name(name: &str) -> bool {
    let lower = name.to_ascii_lowercase();
    ["password", "credentials", "token"].iter().any(|word| lower.contains(word))
}

/// The whole name that is most like an unknown one.
pub fn nearest_variable(full_name: &str) -> Option<&'static str> {
    static NAMES: LazyLock<Vec<String>> =
        LazyLock::new(|| variables().iter().map(Variable::full_name).collect());
    nearest(full_name, NAMES.iter().map(String::as_str))
}
