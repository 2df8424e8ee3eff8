//! Tells how a variable's value is read, which values it takes, and how they are written; and declares structs of variables.

use std::fmt::Display;
use std::marker::PhantomData;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use crate::field::fields::Fields;
use crate::table::variable::{Effect, Marks, Variable};
use crate::value::password::Secret;
use crate::value::suggest::unknown_word;

/// The longest path, in characters.
const PATH_CHARS_MAX: usize = 4096;
/// The longest word.
const WORD_CHARS_MAX: usize = 64;

/// A variable without what its kind tells.
#[derive(Clone, Copy)]
pub(crate) struct Declared {
    pub(crate) module: &'static str,
    pub(crate) name: &'static str,
    pub(crate) field: &'static str,
    pub(crate) doc: &'static str,
    pub(crate) marks: Marks,
}

/// The way in which values of `T` are read and written.
pub(crate) trait Kind<T> {
    const EFFECT: Effect = Effect::Built;

    /// The value; none if it is not there, or a fault that was told.
    fn read(&self, f: &mut Fields<'_, '_>, name: &'static str) -> Option<T>;

    /// A value as it is written.
    fn text(&self, value: &T) -> String;

    /// The values that it takes; empty where the type says it.
    fn values(&self) -> String {
        String::new()
    }

    /// What a number counts.
    fn unit(&self) -> &'static str {
        ""
    }

    /// Adds the variable, or all of a group, to a list. The list lives as long as the program.
    fn declare(&self, declared: Declared, default: &T, list: &mut Vec<Variable>) {
        let Declared { module, name, field, doc, marks } = declared;
        list.push(Variable {
            module,
            name,
            effect: Self::EFFECT,
            values: self.values().leak(),
            unit: self.unit(),
            doc: doc.trim(),
            field: if Self::EFFECT == Effect::Built { field } else { "" },
            default: self.text(default).leak(),
            marks,
        });
    }
}

/// Variables that are read together.
pub(crate) trait Group: Sized {
    /// Adds them to a list.
    fn declare(list: &mut Vec<Variable>);

    /// Reads them.
    fn read(f: &mut Fields<'_, '_>) -> Self;
}

/// A group within another.
pub(crate) struct Nested;

impl<T: Group> Kind<T> for Nested {
    fn read(&self, f: &mut Fields<'_, '_>, _: &'static str) -> Option<T> {
        Some(T::read(f))
    }

    fn text(&self, _: &T) -> String {
        String::new()
    }

    fn declare(&self, _: Declared, _: &T, list: &mut Vec<Variable>) {
        T::declare(list);
    }
}

/// A whole number.
pub(crate) struct Integer<T>(pub(crate) RangeInclusive<T>, &'static str);

/// A number without a unit.
pub(crate) const fn integer<T>(range: RangeInclusive<T>) -> Integer<T> {
    Integer(range, "")
}

/// A number of something.
pub(crate) const fn count_of<T>(unit: &'static str, range: RangeInclusive<T>) -> Integer<T> {
    Integer(range, unit)
}

impl<T: Copy + Display + PartialOrd + TryFrom<i64>> Kind<T> for Integer<T> {
    fn read(&self, f: &mut Fields<'_, '_>, name: &'static str) -> Option<T> {
        f.optional_integer(name, self.0.clone())
    }

    fn text(&self, value: &T) -> String {
        value.to_string()
    }

    fn values(&self) -> String {
        format!("{}..{}", self.0.start(), self.0.end())
    }

    fn unit(&self) -> &'static str {
        self.1
    }
}

/// A time, in milliseconds or seconds.
pub(crate) struct Time {
    unit_ms: u64,
    range: RangeInclusive<u64>,
}

/// A time in milliseconds.
pub(crate) const fn millis(range: RangeInclusive<u64>) -> Time {
    Time { unit_ms: 1, range }
}

/// A time in seconds.
pub(crate) const fn seconds(range: RangeInclusive<u64>) -> Time {
    Time { unit_ms: 1000, range }
}

impl Kind<Duration> for Time {
    fn read(&self, f: &mut Fields<'_, '_>, name: &'static str) -> Option<Duration> {
        let count = f.optional_integer(name, self.range.clone())?;
        Some(Duration::from_millis(self.unit_ms * count))
    }

    fn text(&self, value: &Duration) -> String {
        (value.as_millis() / u128::from(self.unit_ms)).to_string()
    }

    fn values(&self) -> String {
        format!("{}..{}", self.range.start(), self.range.end())
    }

    fn unit(&self) -> &'static str {
        if self.unit_ms == 1 { "ms" } else { "s" }
    }
}

/// true or false, in the words of the default.
pub(crate) struct Truth(&'static str, &'static str);

/// Written so.
pub(crate) const BOOLEAN: Truth = Truth("false", "true");
/// Written as 0 and 1.
pub(crate) const BIT: Truth = Truth("0", "1");

impl Kind<bool> for Truth {
    fn read(&self, f: &mut Fields<'_, '_>, name: &'static str) -> Option<bool> {
        f.optional_boolean(name)
    }

    fn text(&self, value: &bool) -> String {
        if *value { self.1 } else { self.0 }.to_owned()
    }

    fn values(&self) -> String {
        format!("{}, {}", self.0, self.1)
    }
}

/// A text of at most so many characters; whether it may be empty.
pub(crate) struct Text(pub(crate) usize, pub(crate) bool);

impl Kind<String> for Text {
    fn read(&self, f: &mut Fields<'_, '_>, name: &'static str) -> Option<String> {
        let text = f.optional_text(name, self.0)?;
        if text.is_empty() && !self.1 {
            f.refuse(name, "is empty");
        }
        Some(text)
    }

    fn text(&self, value: &String) -> String {
        value.clone()
    }
}

/// A text of at most so many bytes that no fault quotes; an option of it: none if it is empty.
pub(crate) struct Hidden(pub(crate) usize);

impl Kind<Secret> for Hidden {
    fn read(&self, f: &mut Fields<'_, '_>, name: &'static str) -> Option<Secret> {
        f.secret_text(name, self.0).map(Secret::new)
    }

    fn text(&self, value: &Secret) -> String {
        value.expose().to_owned()
    }
}

impl Kind<Option<Secret>> for Hidden {
    fn read(&self, f: &mut Fields<'_, '_>, name: &'static str) -> Option<Option<Secret>> {
        let text = f.secret_text(name, self.0)?;
        Some(Some(text).filter(|text| !text.is_empty()).map(Secret::new))
    }

    fn text(&self, value: &Option<Secret>) -> String {
        value.as_ref().map(|secret| secret.expose().to_owned()).unwrap_or_default()
    }
}

/// A path; none if it is empty.
pub(crate) struct PathName;

impl Kind<Option<PathBuf>> for PathName {
    fn read(&self, f: &mut Fields<'_, '_>, name: &'static str) -> Option<Option<PathBuf>> {
        f.path(name, PATH_CHARS_MAX).map(Some)
    }

    fn text(&self, value: &Option<PathBuf>) -> String {
        value.as_ref().map(|path| path.display().to_string()).unwrap_or_default()
    }
}

/// One of some words, as they stand here or in any case.
pub(crate) struct Word<T: 'static> {
    words: &'static [(&'static str, T)],
    is_any_case: bool,
}

/// A word as it stands here.
pub(crate) const fn word<T>(words: &'static [(&'static str, T)]) -> Word<T> {
    Word { words, is_any_case: false }
}

/// A word in any case.
pub(crate) const fn word_of_any_case<T>(words: &'static [(&'static str, T)]) -> Word<T> {
    Word { words, is_any_case: true }
}

impl<T: Copy + PartialEq> Kind<T> for Word<T> {
    fn read(&self, f: &mut Fields<'_, '_>, name: &'static str) -> Option<T> {
        let text = f.optional_text(name, WORD_CHARS_MAX)?;
        let is_it =
            |word: &str| if self.is_any_case { word.eq_ignore_ascii_case(&text) } else { word == text };
        let found = self.words.iter().find(|(word, _)| is_it(word)).map(|(_, value)| *value);
        if found.is_none() {
            let known: Vec<&'static str> = self.words.iter().map(|(word, _)| *word).collect();
            f.refuse(name, unknown_word(&text, &known));
        }
        found
    }

    fn text(&self, value: &T) -> String {
        let mut words = self.words.iter().filter(|(_, known)| known == value);
        words.next().map_or("", |(word, _)| word).to_owned()
    }

    fn values(&self) -> String {
        self.words.iter().map(|(word, _)| format!("`{word}`")).collect::<Vec<_>>().join(", ")
    }
}

/// One of the numbers from 1 on, by its place in a list.
pub(crate) struct Numbered<T: 'static>(pub(crate) &'static [T]);

impl<T: Copy + PartialEq> Kind<T> for Numbered<T> {
    fn read(&self, f: &mut Fields<'_, '_>, name: &'static str) -> Option<T> {
        let number = f.optional_integer(name, 1..=self.0.len() as u64)?;
        self.0.get(usize::try_from(number - 1).ok()?).copied()
    }

    fn text(&self, value: &T) -> String {
        self.0.iter().position(|known| known == value).map_or(0, |at| at + 1).to_string()
    }

    fn values(&self) -> String {
        format!("1..{}", self.0.len())
    }
}

/// A value that is read and written by functions.
pub(crate) struct By<T> {
    pub(crate) read: fn(&mut Fields<'_, '_>, &'static str) -> Option<T>,
    pub(crate) text: fn(&T) -> String,
    pub(crate) values: &'static str,
}

impl<T> Kind<T> for By<T> {
    fn read(&self, f: &mut Fields<'_, '_>, name: &'static str) -> Option<T> {
        (self.read)(f, name)
    }

    fn text(&self, value: &T) -> String {
        (self.text)(value)
    }

    fn values(&self) -> String {
        self.values.to_owned()
    }
}

/// The value of a variable that has only one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OneValue(PhantomData<()>);

/// That value as a text, and what tells whoever gives another one.
pub(crate) struct Only(pub(crate) &'static str, pub(crate) fn(&mut Fields<'_, '_>, &'static str));

impl Kind<OneValue> for Only {
    const EFFECT: Effect = Effect::OneValue;

    fn read(&self, f: &mut Fields<'_, '_>, name: &'static str) -> Option<OneValue> {
        (self.1)(f, name);
        None
    }

    fn text(&self, _: &OneValue) -> String {
        self.0.to_owned()
    }

    fn values(&self) -> String {
        format!("`{}`", self.0)
    }
}

/// Declares a struct of variables: each field with what the guide says of it, its default, how it is read, what else is so
/// of it, and what is looked at when it was read. The order is that in which faults are told.
macro_rules! variables {
    (
        $(#[$meta:meta])*
        pub struct $Struct:ident of $module:ident {$(
            $(#[doc = $doc:literal])+
            $field:ident $(as $name:literal)?: $Type:ty = $default:expr, $kind:expr
                $(, $marks:expr)? $(=> $check:path)?;
        )*}
    ) => {
        $(#[$meta])*
        pub struct $Struct {$(
            $(#[doc = $doc])+
            #[doc = concat!("\nDefault: `", stringify!($default), "`")]
            pub $field: $Type,
        )*}

        impl Default for $Struct {
            fn default() -> Self {
                Self { $($field: $default),* }
            }
        }

        impl $crate::field::kind::Group for $Struct {
            fn declare(list: &mut Vec<$crate::table::variable::Variable>) {
                let defaults = Self::default();
                $({
                    let name = variables!(@name $field $($name)?);
                    let (module, field, doc) = ($module, stringify!($field), concat!($($doc),+));
                    let marks = variables!(@marks $($marks)?);
                    let declared = $crate::field::kind::Declared { module, name, field, doc, marks };
                    $crate::field::kind::Kind::<$Type>::declare(&$kind, declared, &defaults.$field, list);
                })*
            }

            fn read(f: &mut $crate::field::fields::Fields<'_, '_>) -> Self {
                let mut v = Self::default();
                $(
                    let name = variables!(@name $field $($name)?);
                    if let Some(value) = $crate::field::kind::Kind::<$Type>::read(&$kind, f, name) {
                        v.$field = value;
                    }
                    $($check(f, &v);)?
                )*
                v
            }
        }
    };
    (@marks) => { $crate::table::variable::Marks::default() };
    (@marks $marks:expr) => { $marks };
    (@name $field:ident) => { stringify!($field) };
    (@name $field:ident $name:literal) => { $name };
}

pub(crate) use variables;
