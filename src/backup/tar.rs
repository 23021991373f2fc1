//! The format: a plain tar, as POSIX has it, that any `tar` reads in ten years. Regular files, and nothing else.
//!
//! Written by hand, because reading is where strangers' bytes come in: what is not of the few forms that we write is refused
//! here, before anybody has to think about links, devices, sparse files or names that some extension makes longer.

use std::io::{self, Read};

use super::BackupError;

pub const BLOCK: usize = 512;
const NAME_MAX: usize = 100;
const PREFIX_MAX: usize = 155;
/// 64 GiB. Up to 8 GiB there are eleven octal digits, as the standard has it; a twelfth, in the place of their end, is read by all.
const SIZE_MAX: u64 = 0o777_777_777_777;
/// What follows the end: `tar` fills its last record.
const RECORD_MAX: u64 = 10_240;

/// What comes before the bytes of one file. `None`: its name or its size does not fit.
pub fn header(name: &str, bytes: u64, mode: u32, modified_secs: i64) -> Option<[u8; BLOCK]> {
    let (prefix, name) = split(name)?;
    if bytes > SIZE_MAX {
        return None;
    }
    let mut block = [0; BLOCK];
    let mut put = |at: usize, text: &[u8]| block[at..at + text.len()].copy_from_slice(text);
    put(0, name.as_bytes());
    put(100, format!("{mode:07o}").as_bytes());
    put(108, b"0000000");
    put(116, b"0000000");
    put(124, format!("{bytes:011o}").as_bytes());
    put(136, format!("{:011o}", modified_secs.max(0)).as_bytes());
    put(148, b"        ");
    put(156, b"0");
    put(257, b"ustar\0");
    put(263, b"00");
    put(345, prefix.as_bytes());
    let sum = checksum(&block);
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    Some(block)
}

/// So that a long name has its folder in a field of its own.
fn split(name: &str) -> Option<(&str, &str)> {
    if name.len() <= NAME_MAX {
        return Some(("", name));
    }
    let fits = |(at, _): &(usize, &str)| *at <= PREFIX_MAX && name.len() - at - 1 <= NAME_MAX;
    let (at, _) = name.match_indices('/').find(fits)?;
    Some((&name[..at], &name[at + 1..]))
}

/// Zeros that fill the last block of a file.
pub fn padding(bytes: u64) -> usize {
    (BLOCK - (bytes % BLOCK as u64) as usize) % BLOCK
}

/// After the last file.
pub const END: [u8; 2 * BLOCK] = [0; 2 * BLOCK];

/// Every byte, as if the sum itself were spaces.
fn checksum(block: &[u8; BLOCK]) -> u32 {
    let of = |(at, byte): (usize, &u8)| match (148..156).contains(&at) {
        true => u32::from(b' '),
        false => u32::from(*byte),
    };
    block.iter().enumerate().map(of).sum()
}

/// One file of an archive: its bytes come next.
#[derive(Debug, PartialEq, Eq)]
pub struct Entry {
    pub name: String,
    pub bytes: u64,
}

/// `None`: that was the last, and nothing follows.
pub fn next_entry(source: &mut impl Read) -> Result<Option<Entry>, BackupError> {
    let mut block = [0; BLOCK];
    read_block(source, &mut block)?;
    if block == [0; BLOCK] {
        read_block(source, &mut block)?;
        if block != [0; BLOCK] {
            return Err(damaged("a file without a head"));
        }
        return match io::copy(&mut source.take(RECORD_MAX + 1), &mut io::sink()) {
            Ok(0..=RECORD_MAX) => Ok(None),
            Ok(_) => Err(damaged("something follows its end")),
            Err(error) => Err(ended(error)),
        };
    }
    if octal(&block[148..156]) != Some(u64::from(checksum(&block))) || &block[257..262] != b"ustar"
    {
        return Err(damaged(
            "the head of a file is not sound; if the backup went through backup.pipe or --pipe, undo that first",
        ));
    }
    let (prefix, name) = (text(&block[345..500]), text(&block[..100]));
    let (Some(prefix), Some(name)) = (prefix, name) else {
        return Err(damaged("the name of a file is no text"));
    };
    let name = match prefix {
        "" => name.to_string(),
        prefix => format!("{prefix}/{name}"),
    };
    let kind = match block[156] {
        b'0' | 0 => None,
        b'1' | b'2' => Some("a link"),
        b'3' | b'4' => Some("a device"),
        b'5' => Some("a folder"),
        b'6' => Some("a pipe"),
        _ => Some("no plain file"),
    };
    if let Some(kind) = kind {
        return Err(BackupError::Foreign {
            name,
            why: format!("it is {kind}"),
        });
    }
    let bytes =
        octal(&block[124..136]).ok_or_else(|| damaged("the size of a file is no number"))?;
    Ok(Some(Entry { name, bytes }))
}

/// What fills the block after so many bytes.
pub fn skip_padding(source: &mut impl Read, bytes: u64) -> Result<(), BackupError> {
    let mut rest = [0; BLOCK];
    let rest = &mut rest[..padding(bytes)];
    source.read_exact(rest).map_err(ended)
}

fn read_block(source: &mut impl Read, block: &mut [u8; BLOCK]) -> Result<(), BackupError> {
    source.read_exact(block).map_err(ended)
}

pub fn ended(error: io::Error) -> BackupError {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => BackupError::Truncated,
        // What its gzip says.
        io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData => damaged(&error.to_string()),
        _ => BackupError::Unreadable(error),
    }
}

fn damaged(what: &str) -> BackupError {
    BackupError::Damaged(what.to_string())
}

fn octal(field: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(field).ok()?;
    let digits = text.trim_matches([' ', '\0']);
    let is_plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    u64::from_str_radix(digits, 8).ok().filter(|_| is_plain)
}

fn text(field: &[u8]) -> Option<&str> {
    let end = field.iter().position(|byte| *byte == 0);
    std::str::from_utf8(&field[..end.unwrap_or(field.len())]).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(mut bytes: &[u8]) -> Result<Option<Entry>, BackupError> {
        next_entry(&mut bytes)
    }

    #[test]
    fn what_is_written_is_read_as_it_was() {
        let long = format!("{}/{}", "a".repeat(120), "b".repeat(90));
        for (name, bytes) in [("a", 0), ("stepward-backup/x.log", 513), (&long, SIZE_MAX)] {
            let block = header(name, bytes, 0o600, 1_700_000_000).unwrap();
            let entry = read(&block).unwrap().unwrap();
            assert_eq!((entry.name.as_str(), entry.bytes), (name, bytes));
        }
        assert_eq!(
            header(&"x".repeat(101), 0, 0, 0),
            None,
            "no folder to split at"
        );
        assert_eq!(header("x", SIZE_MAX + 1, 0, 0), None);
    }

    #[test]
    fn one_wrong_bit_in_a_head_is_seen() {
        let block = header("name", 7, 0o600, 5).unwrap();
        for at in 0..BLOCK {
            let mut wrong = block;
            wrong[at] ^= 0x01;
            // The two bytes that end the sum say nothing.
            assert!(read(&wrong).is_err() || (154..156).contains(&at), "{at}");
        }
    }

    #[test]
    fn an_archive_that_ends_too_soon_or_not_at_all_is_none() {
        assert!(matches!(read(&[]), Err(BackupError::Truncated)));
        assert!(matches!(read(&[0; BLOCK]), Err(BackupError::Truncated)));
        assert!(matches!(read(&END), Ok(None)));
        let more = vec![0; 1 << 20];
        assert!(matches!(read(&more), Err(BackupError::Damaged(_))));
    }
}
