//! The files that a scenario names, such as delivery traces.

use core::cell::RefCell;
use core::fmt;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A file's text, or why there is none.
pub(super) type File = Result<Arc<str>, String>;

/// Loads files by name, each once: what is read must not depend on when.
pub(super) struct Files<'a> {
    load: &'a dyn Fn(&str) -> Result<String, String>,
    read: RefCell<BTreeMap<String, File>>,
}

impl<'a> Files<'a> {
    pub(super) fn new(load: &'a dyn Fn(&str) -> Result<String, String>) -> Self {
        Files { load, read: RefCell::default() }
    }

    /// Those that were read before, and no others.
    pub(super) fn known(read: BTreeMap<String, File>) -> Self {
        Files { load: &nothing, read: RefCell::new(read) }
    }

    pub(super) fn get(&self, name: &str) -> File {
        let mut read = self.read.borrow_mut();
        let load = || (self.load)(name).map(Arc::from);
        read.entry(name.to_owned()).or_insert_with(load).clone()
    }

    pub(super) fn into_read(self) -> BTreeMap<String, File> {
        self.read.into_inner()
    }
}

/// Of a scenario that is no file itself.
pub(super) fn nothing(name: &str) -> Result<String, String> {
    Err(format!("there is no file '{name}': this scenario can only hold what it needs itself"))
}

impl fmt::Debug for Files<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Files").field("read", &self.read.borrow().keys()).finish_non_exhaustive()
    }
}
