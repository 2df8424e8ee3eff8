//! Describes a variable as lists of variables have it: SHOW, the database, the guide.

/// `mysql-` variables.
pub(crate) const MYSQL: &str = "mysql";
/// `admin-` variables.
pub(crate) const ADMIN: &str = "admin";

/// The effect of a variable's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Effect {
    /// It counts.
    Built,
    /// One value says what is so anyway, and whoever gives another one is told.
    OneValue,
    /// The default means "off", and other values have no effect.
    OnlyOff,
    /// No value has an effect.
    None,
}

/// Further properties of a variable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Marks {
    is_local: bool,
    needs_restart: bool,
}

/// Of one machine.
pub(crate) const LOCAL: Marks = Marks { is_local: true, needs_restart: false };
/// Taken at a start only.
pub(crate) const RESTART: Marks = Marks { is_local: false, needs_restart: true };
/// Both.
pub(crate) const LOCAL_AND_RESTART: Marks = Marks { is_local: true, needs_restart: true };

/// A variable of `global_variables`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Variable {
    /// `mysql` or `admin`.
    pub module: &'static str,
    /// Its name without the module, such as `threads`.
    pub name: &'static str,
    /// What becomes of its value.
    pub effect: Effect,
    /// The values that it takes, in words such as `1..255`; empty where the type says it.
    pub values: &'static str,
    /// What a number counts, such as `ms`; empty where it has no unit.
    pub unit: &'static str,
    /// What it means, in Markdown, with links as from a page of the guide.
    pub doc: &'static str,
    /// The field of the configuration that has its value; empty where no value counts.
    pub field: &'static str,
    pub(crate) default: &'static str,
    pub(crate) marks: Marks,
}

impl Variable {
    /// One without effect.
    pub(crate) const fn unbuilt(
        module: &'static str,
        name: &'static str,
        default: &'static str,
        effect: Effect,
    ) -> Self {
        let marks = Marks { is_local: false, needs_restart: false };
        Self { module, name, effect, values: "", unit: "", doc: "", field: "", default, marks }
    }

    /// The name in `global_variables`, such as `mysql-threads`.
    pub fn full_name(&self) -> String {
        format!("{}-{}", self.module, self.name)
    }

    /// The value that holds where none is given, as text.
    pub fn default_value(&self) -> &'static str {
        self.default
    }

    /// The value that holds where none is given, in Markdown, with its unit.
    pub fn shown_default(&self) -> String {
        match (self.module, self.name, self.default) {
            (MYSQL, "threads", _) => "number of CPU cores".to_owned(),
            (ADMIN, "version", _) => "the running version".to_owned(),
            (_, _, "") => "empty".to_owned(),
            (_, _, value) => self.with_unit(&format!("`{value}`")),
        }
    }

    /// The values that it takes, with their unit; empty where the type says it.
    pub fn shown_values(&self) -> String {
        if self.values.is_empty() { String::new() } else { self.with_unit(self.values) }
    }

    fn with_unit(&self, text: &str) -> String {
        if self.unit.is_empty() { text.to_owned() } else { format!("{text} {}", self.unit) }
    }

    /// Whether it is of one machine, so that a cluster of proxies leaves it alone: addresses and files, threads, and
    /// what runs.
    pub fn is_local(&self) -> bool {
        self.marks.is_local
    }

    /// Whether a Weir that runs keeps the value with which it began.
    pub fn needs_restart(&self) -> bool {
        self.marks.needs_restart
    }
}
