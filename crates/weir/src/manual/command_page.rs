//! Makes the manual page of a command, with what its `--help` says behind the options as sections of their own.

use std::io;

use clap_mangen::Man;
use clap_mangen::roff::{Roff, roman};

use super::{MANUAL, Page};

/// A heading of `--help`, such as "Examples", becomes the section's title. Text without one becomes this.
const UNTITLED: &str = "NOTES";
/// In `--help` it stands in the text, for shortness.
const EXIT_STATUS: &str = "Exit status: ";

/// A part of a page.
#[derive(Debug, PartialEq, Eq)]
struct Section {
    title: String,
    blocks: Vec<Block>,
}

/// What is filled, or stays as it is.
#[derive(Debug, PartialEq, Eq)]
enum Block {
    Prose(String),
    Lines(Vec<String>),
}

/// The pages of a command and of all below it, each after those below it.
pub(super) fn pages(command: clap::Command) -> io::Result<Vec<Page>> {
    let mut command = command.disable_help_subcommand(true);
    // Gives the commands below their whole names.
    command.build();
    let mut pages = Vec::new();
    add(&command, &mut pages)?;
    Ok(pages)
}

fn add(command: &clap::Command, pages: &mut Vec<Page>) -> io::Result<()> {
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
        add(below, pages)?;
    }
    pages.push(page(command)?);
    Ok(())
}

fn page(command: &clap::Command) -> io::Result<Page> {
    let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let source = concat!("weir ", env!("CARGO_PKG_VERSION"));
    let man = Man::new(command.clone()).manual(MANUAL).source(source);
    let name = man.get_filename();
    let mut roff = Vec::new();
    man.render_title(&mut roff)?;
    man.render_name_section(&mut roff)?;
    man.render_synopsis_section(&mut roff)?;
    man.render_description_section(&mut roff)?;
    man.render_options_section(&mut roff)?;
    if command.has_subcommands() {
        man.render_subcommands_section(&mut roff)?;
    }
    let mut rest = Roff::new();
    for section in sections(&help) {
        add_section(&section, &mut rest);
    }
    rest.control("SH", ["SEE ALSO"]);
    rest.text([roman(see_also(command))]);
    rest.to_writer(&mut roff)?;
    Ok(Page { name, roff })
}

/// Names the pages of the commands above and below, and that of weir.toml.
fn see_also(command: &clap::Command) -> String {
    let name = command.get_display_name().unwrap_or(command.get_name());
    let above = name.match_indices('-').map(|(end, _)| name[..end].to_owned());
    let below = command.get_subcommands().filter(|below| !below.is_hide_set());
    let below = below.map(|below| format!("{name}-{}", below.get_name()));
    let pages = above.chain(below).map(|page| format!("{page}(1)"));
    pages.chain(["weir.toml(5)".to_owned()]).collect::<Vec<_>>().join(", ")
}

fn add_section(section: &Section, roff: &mut Roff) {
    roff.control("SH", [section.title.as_str()]);
    for (at, block) in section.blocks.iter().enumerate() {
        if at > 0 {
            roff.control("PP", []);
        }
        match block {
            Block::Prose(text) => {
                roff.text([roman(text)]);
            }
            Block::Lines(lines) => {
                roff.control("nf", []);
                for line in lines {
                    roff.text([roman(line)]);
                }
                roff.control("fi", []);
            }
        }
    }
}

/// The text of `--help` behind the options, in sections.
fn sections(help: &str) -> Vec<Section> {
    let (before, status) = help.split_once(EXIT_STATUS).unwrap_or((help, ""));
    let mut sections: Vec<Section> = Vec::new();
    let mut is_open = false;
    let mut lines = before.lines().peekable();
    while let Some(line) = lines.next() {
        let heading = line.strip_suffix(':').filter(|_| lines.peek().is_some_and(|next| is_literal(next)));
        if let Some(heading) = heading {
            sections.push(Section { title: heading.to_uppercase(), blocks: Vec::new() });
            is_open = false;
        } else if line.trim().is_empty() {
            is_open = false;
        } else {
            add_line(line, is_open, &mut sections);
            is_open = true;
        }
    }
    if !status.is_empty() {
        let text = status.lines().map(str::trim).collect::<Vec<_>>().join(" ");
        sections.push(Section { title: "EXIT STATUS".to_owned(), blocks: vec![Block::Prose(text)] });
    }
    sections
}

fn is_literal(line: &str) -> bool {
    line.starts_with("  ")
}

/// `is_open`: it goes on what the line before it began.
fn add_line(line: &str, is_open: bool, sections: &mut Vec<Section>) {
    let last = sections.last_mut().and_then(|section| section.blocks.last_mut()).filter(|_| is_open);
    match last {
        Some(Block::Lines(lines)) if is_literal(line) => lines.push(line.trim().to_owned()),
        Some(Block::Prose(text)) if !is_literal(line) => {
            text.push(' ');
            text.push_str(line.trim());
        }
        _ => begin_block(line, sections),
    }
}

fn begin_block(line: &str, sections: &mut Vec<Section>) {
    let text = line.trim().to_owned();
    let block = if is_literal(line) { Block::Lines(vec![text]) } else { Block::Prose(text) };
    // A section with a heading of its own has lines only; what is said behind them is about the whole command.
    match sections.last_mut() {
        Some(section) if section.title == UNTITLED || is_literal(line) => section.blocks.push(block),
        _ => sections.push(Section { title: UNTITLED.to_owned(), blocks: vec![block] }),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    fn section(title: &str, blocks: Vec<Block>) -> Section {
        Section { title: title.to_owned(), blocks }
    }

    fn prose(text: &str) -> Block {
        Block::Prose(text.to_owned())
    }

    fn lines(lines: &[&str]) -> Block {
        Block::Lines(lines.iter().map(|&line| line.to_owned()).collect())
    }

    #[test]
    fn headings_lines_prose_and_exit_status_are_told_apart() {
        let help = "Examples:\n  weir a\n  weir b   why\n\nOne line,\nand its end.\n\nAnother.\n\nSignals:\n  HUP   again\n\n\
                    Never shown. Exit status: 0 if so,\n1 if not.";
        let wanted = vec![
            section("EXAMPLES", vec![lines(&["weir a", "weir b   why"])]),
            section("NOTES", vec![prose("One line, and its end."), prose("Another.")]),
            section("SIGNALS", vec![lines(&["HUP   again"])]),
            section("NOTES", vec![prose("Never shown.")]),
            section("EXIT STATUS", vec![prose("0 if so, 1 if not.")]),
        ];
        assert_eq!(sections(help), wanted);
        assert_eq!(sections(""), vec![]);
        assert_eq!(sections("Ends so:"), vec![section("NOTES", vec![prose("Ends so:")])]);
    }

    #[test]
    fn every_page_has_a_purpose_examples_and_exit_status() {
        for Page { name, roff } in pages(crate::Cli::command()).unwrap() {
            let text = String::from_utf8(roff).unwrap();
            // weir and weir config lead to others.
            let wanted: &[&str] = match name.as_str() {
                "weir.1" => &["EXAMPLES", "SUBCOMMANDS"],
                _ => &["EXAMPLES", "\"EXIT STATUS\"", "OPTIONS"],
            };
            for title in ["NAME", "SYNOPSIS", "DESCRIPTION", "\"SEE ALSO\""].iter().chain(wanted) {
                assert!(text.contains(&format!("\n.SH {title}\n")), "{name} has no {title}:\n{text}");
            }
        }
    }

    #[test]
    fn pages_lead_to_those_above_and_below() {
        let mut command = crate::Cli::command();
        command.build();
        let config = command.find_subcommand("config").unwrap();
        let wanted = "weir(1), weir-config-check(1), weir-config-diff(1)";
        assert!(see_also(config).starts_with(wanted), "{}", see_also(config));
        let check = config.find_subcommand("check").unwrap();
        assert_eq!(see_also(check), "weir(1), weir-config(1), weir.toml(5)");
    }
}
