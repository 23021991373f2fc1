//! Secrets by reference: where one is found, never what it is.

/// Resolved on the server, for the one assignment that needs it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SecretRef {
    /// A variable in the server's environment.
    Env(String),
    /// A file that the server can read; one line end at its end is not part of it.
    File(String),
}
