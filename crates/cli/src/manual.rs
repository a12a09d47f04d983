//! `farhaul man` and `farhaul completions`: what is said of the command elsewhere, from the same
//! definitions.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::{Arg, Args, Command};
use clap_complete::Shell;
use clap_mangen::Man;
use roff::{Roff, bold, italic, roman};

use crate::config::{CATALOGUE, FILE_VARIABLE};
use crate::exit::{CODES, Usage};
use crate::keys::{allow_list, identity, known_servers};
use crate::{files, output};

/// Print a manual page, or write all of them: one a command.
#[derive(Args, Debug)]
pub struct ManArgs {
    /// The command whose page to print, as in: farhaul man key new
    #[arg(value_name = "COMMAND", conflicts_with = "into")]
    command: Vec<String>,
    /// Write all pages to this directory, which is made if there is none
    #[arg(long, value_name = "DIR")]
    into: Option<PathBuf>,
}

/// Print what makes a shell complete farhaul's commands and options.
///
/// For bash: farhaul completions bash > ~/.local/share/bash-completion/completions/farhaul
#[derive(Args, Debug)]
pub struct CompletionsArgs {
    /// Which shell
    shell: Shell,
}

/// Runs `farhaul completions` for `command`.
pub fn completions(args: &CompletionsArgs, mut command: Command) -> Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, "farhaul", &mut script);
    output::print(&script)
}

/// Runs `farhaul man` for `command`.
pub fn man(args: &ManArgs, command: Command) -> Result<()> {
    let command = built(command);
    let Some(directory) = &args.into else {
        let mut wanted = &command;
        for name in &args.command {
            let known = || visible(wanted).map(Command::get_name);
            wanted = visible(wanted).find(|sub| sub.get_name() == name).ok_or_else(|| {
                let hint =
                    farhaul_base::names::suggestion(name, known().collect::<Vec<_>>().into_iter());
                Usage(format!("there is no command '{name}' here; {hint}"))
            })?;
        }
        return output::print(&page(wanted)?);
    };
    fs::create_dir_all(directory)
        .with_context(|| format!("cannot make {}", directory.display()))?;
    let pages = pages(&command)?;
    for (name, text) in &pages {
        files::write(&directory.join(name), text)?;
    }
    output::print(format!("{} pages in {}\n", pages.len(), directory.display()).as_bytes())
}

/// With everything filled in that clap derives.
fn built(command: Command) -> Command {
    let mut command = command.disable_help_subcommand(true);
    command.build();
    command
}

fn visible(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|sub| !sub.is_hide_set())
}

/// The pages of a command and those below it: names of files and texts.
fn pages(command: &Command) -> Result<Vec<(String, Vec<u8>)>> {
    let mut all = vec![(format!("{}.1", full_name(command)), page(command)?)];
    for sub in visible(command) {
        all.extend(pages(sub)?);
    }
    Ok(all)
}

/// `farhaul-key-new`.
fn full_name(command: &Command) -> &str {
    command.get_display_name().unwrap_or_else(|| command.get_name())
}

fn page(command: &Command) -> Result<Vec<u8>> {
    let name = full_name(command);
    let man = Man::new(command.clone().mut_args(with_aliases));
    // No date, so that the same program has the same pages. clap_mangen would leave it out unquoted,
    // and what follows would be taken for it.
    let mut text = format!(
        ".TH \"{}\" \"1\" \"\" \"farhaul {}\" \"farhaul\"\n",
        name.to_uppercase(),
        env!("CARGO_PKG_VERSION")
    )
    .into_bytes();
    man.render_name_section(&mut text)?;
    man.render_synopsis_section(&mut text)?;
    man.render_description_section(&mut text)?;
    man.render_options_section(&mut text)?;
    if visible(command).next().is_some() {
        man.render_subcommands_section(&mut text)?;
    }
    if command.get_after_long_help().is_some() || command.get_after_help().is_some() {
        man.render_extra_section(&mut text)?;
    }
    let mut rest = Roff::new();
    exit_status(&mut rest);
    if name == "farhaul-serve" {
        signals(&mut rest);
    }
    if has_settings(name) {
        let of_cp = !["farhaul-key", "farhaul-serve"].iter().any(|other| name.starts_with(other));
        environment(&mut rest, of_cp);
        own_files(&mut rest);
    }
    if let Some((parent, _)) = name.rsplit_once('-') {
        rest.control("SH", ["SEE ALSO"]);
        rest.text([bold(parent), roman("(1)")]);
    }
    rest.to_writer(&mut text)?;
    Ok(text)
}

/// Tells other names of an option as `--help` does, which clap_mangen leaves out.
fn with_aliases(arg: Arg) -> Arg {
    let Some(aliases) = arg.get_visible_aliases().filter(|aliases| !aliases.is_empty()) else {
        return arg;
    };
    let names: Vec<String> = aliases.iter().map(|alias| format!("--{alias}")).collect();
    let names = format!(" [aliases: {}]", names.join(", "));
    let longer =
        |help: Option<&clap::builder::StyledStr>| help.map(|help| format!("{help}{names}"));
    let (short, long) = (longer(arg.get_help()), longer(arg.get_long_help()));
    let arg = if let Some(short) = short { arg.help(short) } else { arg };
    if let Some(long) = long { arg.long_help(long) } else { arg }
}

/// Whether the command, or one below it, looks at farhaul's own files.
fn has_settings(name: &str) -> bool {
    match name.strip_prefix("farhaul-") {
        None => true,
        Some(rest) => {
            let first = rest.split('-').next().unwrap_or_default();
            ["cp", "config", "key", "serve", "doctor"].contains(&first)
        }
    }
}

fn exit_status(page: &mut Roff) {
    page.control("SH", ["EXIT STATUS"]);
    for (code, meaning) in CODES {
        page.control("TP", []);
        page.text([bold(code.to_string())]);
        page.text([roman(*meaning)]);
    }
}

fn signals(page: &mut Roff) {
    page.control("SH", ["SIGNALS"]);
    let known = [
        (
            "SIGHUP",
            "Read the file and the list of keys again. If anything is wrong, the log says why and \
             everything stays as it was. Running sessions that make use of what is not allowed any more \
             end; the others have the new limits, but for the number of sessions.",
        ),
        (
            "SIGTERM, SIGINT",
            "Begin nothing more, let running sessions end for the time of grace that the file \
             names, then end them; their clients can go on later. A second one ends all at once.",
        ),
    ];
    for (name, meaning) in known {
        page.control("TP", []);
        page.text([bold(name)]);
        page.text([roman(meaning)]);
    }
}

fn environment(page: &mut Roff, settings: bool) {
    page.control("SH", ["ENVIRONMENT"]);
    if settings {
        page.text([roman(
            "Settings of farhaul cp; a flag goes before its variable, and that before the \
             settings file.",
        )]);
        for info in CATALOGUE {
            page.control("TP", []);
            page.text([bold(info.variable()), roman("="), italic(info.form)]);
            page.text([roman(format!("{} (default: {}).", info.help, info.default))]);
        }
    }
    let others = [
        (FILE_VARIABLE, "Another settings file than the usual one."),
        ("XDG_CONFIG_HOME", "Where farhaul has its directory, instead of ~/.config."),
    ];
    for (variable, meaning) in others {
        page.control("TP", []);
        page.text([bold(variable)]);
        page.text([roman(meaning)]);
    }
}

fn own_files(page: &mut Roff) {
    page.control("SH", ["FILES"]);
    let known = [
        (
            "config.toml",
            "Settings, by the names of their flags; those for some hosts are in sections [host.\"NAME\"], where NAME may have * and ?.",
        ),
        (identity::FILE, "The user's own key: secret."),
        (allow_list::FILE, "The keys that may connect to farhaul serve, a line each."),
        (known_servers::FILE, "The keys of servers that were met, a line each."),
    ];
    for (name, meaning) in known {
        page.control("TP", []);
        page.text([italic(format!("~/.config/farhaul/{name}"))]);
        page.text([roman(meaning)]);
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::Cli;

    fn commands(command: &Command, all: &mut Vec<String>) {
        all.push(full_name(command).to_owned());
        visible(command).for_each(|sub| commands(sub, all));
    }

    #[test]
    fn every_command_has_a_page_of_its_own() {
        let command = built(Cli::command());
        let mut names = Vec::new();
        commands(&command, &mut names);
        let pages = pages(&command).expect("pages");
        assert_eq!(pages.len(), names.len());
        for (file, text) in &pages {
            let text = std::str::from_utf8(text).expect("UTF-8");
            let name = file.strip_suffix(".1").expect("section 1");
            assert!(names.iter().any(|known| known == name), "{name}");
            for part in ["NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "\"EXIT STATUS\""] {
                assert!(text.contains(&format!(".SH {part}\n")), "{file} has no {part}");
            }
            for (code, meaning) in CODES {
                assert!(text.contains(&format!("\\fB{code}\\fR\n{meaning}")), "{file}: {code}");
            }
            assert_eq!(text.contains(".SH ENVIRONMENT"), has_settings(name), "{file}");
            well_formed(file, text);
        }
    }

    /// Nothing but the requests that pages are made of begins a line with a dot.
    fn well_formed(file: &str, text: &str) {
        const REQUESTS: [&str; 11] =
            [".TH", ".SH", ".TP", ".PP", ".RS", ".RE", ".br", ".ie", ".el", ".SS", ".IP"];
        for line in text.lines().filter(|line| line.starts_with('.')) {
            let request = line.split_whitespace().next().unwrap_or_default();
            assert!(REQUESTS.contains(&request), "{file}: {line}");
        }
        let count = |request: &str| text.lines().filter(|line| line.starts_with(request)).count();
        assert_eq!(count(".RS"), count(".RE"), "{file}");
        assert_eq!(count(".TH"), 1, "{file}");
    }

    #[test]
    fn other_names_of_options_are_on_the_page() {
        let command = built(Cli::command());
        let cp = command.find_subcommand("cp").expect("farhaul cp");
        let text = String::from_utf8(page(cp).expect("a page")).expect("UTF-8");
        let text = text.replace('\\', "");
        for alias in ["--no-clobber", "--interface"] {
            assert!(text.contains(&format!("[aliases: {alias}]")), "{alias}: {text}");
        }
    }

    #[test]
    fn every_setting_is_on_the_page() {
        let text = String::from_utf8(page(&built(Cli::command())).expect("a page")).expect("UTF-8");
        for info in CATALOGUE {
            assert!(text.contains(&info.variable()), "{}", info.name);
        }
    }
}
