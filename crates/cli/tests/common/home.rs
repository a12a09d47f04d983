//! A user's home of its own for a test, and `farhaul` run in it.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

/// An empty home, which goes with the value.
pub struct Home {
    dir: tempfile::TempDir,
}

/// What a command came to.
#[derive(Debug)]
pub struct Outcome {
    pub code: Option<i32>,
    pub output: String,
    pub errors: String,
}

impl Home {
    pub fn new() -> Home {
        Home { dir: tempfile::tempdir().expect("a directory for the test") }
    }

    /// The file `name` of farhaul in it.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join("config/farhaul").join(name)
    }

    /// Writes that file.
    pub fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().expect("it is in a directory")).expect("a directory");
        fs::write(path, text).expect("a file");
    }

    pub fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).expect(name)
    }

    /// The variables that make it the home.
    pub fn variables(&self) -> [(&'static str, PathBuf); 2] {
        let home = self.dir.path();
        [("HOME", home.to_owned()), ("XDG_CONFIG_HOME", home.join("config"))]
    }

    /// Runs `farhaul` to its end, with no variables of farhaul's.
    pub fn run(&self, args: &[&str]) -> Outcome {
        self.run_with(args, &[])
    }

    /// The same with these variables.
    pub fn run_with(&self, args: &[&str], variables: &[(&str, &str)]) -> Outcome {
        let mut command = Command::new(env!("CARGO_BIN_EXE_farhaul"));
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("FARHAUL_") {
                command.env_remove(name);
            }
        }
        command.args(args).envs(self.variables()).envs(variables.iter().copied());
        let output = command.output().expect("farhaul runs");
        let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
        Outcome {
            code: output.status.code(),
            output: text(output.stdout),
            errors: text(output.stderr),
        }
    }
}

impl Outcome {
    /// What it printed; it must have ended well.
    pub fn well(self) -> String {
        assert_eq!(self.code, Some(0), "{self:#?}");
        self.output
    }

    /// What it complained about; it must have ended with `code` and printed nothing else.
    pub fn refused(self, code: i32) -> String {
        assert_eq!((self.code, self.output.as_str()), (Some(code), ""), "{self:#?}");
        self.errors
    }
}
