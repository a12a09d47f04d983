//! Directories on which something is to be mounted: one that is empty may only seem to be so.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use rustix::fs::{AtFlags, StatxAttributes, StatxFlags, statx};

/// The mount points that `/etc/fstab` has; none if it cannot be read.
pub fn mount_points() -> Vec<PathBuf> {
    fs::read("/etc/fstab").map(|table| parse(&table)).unwrap_or_default()
}

/// See fstab(5).
fn parse(table: &[u8]) -> Vec<PathBuf> {
    let lines = table.split(|byte| *byte == b'\n');
    let points = lines.filter_map(|line| {
        let mut fields = line.split(u8::is_ascii_whitespace).filter(|field| !field.is_empty());
        let device = fields.next()?;
        let point = fields.next().filter(|_| !device.starts_with(b"#"))?;
        point.starts_with(b"/").then(|| PathBuf::from(unescape(point)))
    });
    // Without slashes at the end.
    points.map(|point| point.components().collect()).collect()
}

/// Blanks are written as `\\040`, and so on.
fn unescape(field: &[u8]) -> OsString {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let [first, after @ ..] = rest {
        let digits = after.get(..3).filter(|_| *first == b'\\');
        let octal = digits.and_then(|digits| std::str::from_utf8(digits).ok());
        match octal.and_then(|octal| u8::from_str_radix(octal, 8).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[3..];
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    OsString::from_vec(bytes)
}

/// Whether a directory of this name is one of the `points`, and nothing is mounted there, as far as the kernel
/// tells (Linux 5.8).
pub(super) fn is_unmounted(directory: BorrowedFd<'_>, name: &OsStr, points: &[PathBuf]) -> bool {
    if !points.iter().any(|point| point.file_name() == Some(name)) {
        return false;
    }
    let path = fs::read_link(format!("/proc/self/fd/{}", directory.as_raw_fd()));
    path.is_ok_and(|path| points.contains(&path))
        && statx(directory, c"", AtFlags::EMPTY_PATH, StatxFlags::empty()).is_ok_and(|stat| {
            let root = StatxAttributes::MOUNT_ROOT;
            stat.stx_attributes_mask.contains(root) && !stat.stx_attributes.contains(root)
        })
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsFd;
    use std::os::unix::ffi::OsStrExt;
    use std::path::Path;

    use super::*;

    #[test]
    fn the_table_of_mounts_is_read() {
        let table = b"# /dev/x /not ext4\n\n/dev/a / ext4 defaults 0 1\nUUID=1\t/data//\text4 rw\n\
            /dev/b none swap sw\n#/dev/c /neither\nhost:/x /mnt/a\\040b\\134\\9 nfs\n/dev/d\n";
        let expected = ["/", "/data", "/mnt/a b\\\\9"].map(PathBuf::from);
        assert_eq!(parse(table), expected);
        assert!(parse(b"\xff /\xff").contains(&Path::new(OsStr::from_bytes(b"/\xff")).into()));
    }

    #[test]
    fn only_a_mount_point_with_nothing_mounted_is_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().canonicalize().unwrap();
        let points = [path.clone(), PathBuf::from("/proc")];
        let name = path.file_name().unwrap();
        let open = File::open(&path).unwrap();
        assert!(is_unmounted(open.as_fd(), name, &points));
        assert!(!is_unmounted(open.as_fd(), name, &points[1..]));
        let mounted = File::open("/proc").unwrap();
        assert!(!is_unmounted(mounted.as_fd(), OsStr::new("proc"), &points));
    }
}
